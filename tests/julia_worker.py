"""Which worker of pytest-xdist gets which file: one of them those that need Julia."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling


class JuliaInOneWorker(LoadFileScheduling):
    """Hands out files as `--dist loadfile` does, and those for Julia to the last worker.

    What Julia has loaded and compiled for a test it has for the next ones, too, but only in its own
    process. The others, when they have no other ones left, take such files from the end: there
    stand those with a Julia of their own for each test, which need none of the worker.
    """

    def _assign_work_unit(self, node: Any) -> None:
        with_julia = node is self.nodes[-1]
        files = list(self.workqueue)
        fitting = [file for file in files if ("/bridge/" in file) == with_julia]
        left = files if with_julia else files[::-1]
        self.workqueue.move_to_end((fitting or left)[0], last=False)
        super()._assign_work_unit(node)
