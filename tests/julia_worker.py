"""Which worker of pytest-xdist gets which file: one of them those that need Julia."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling


class JuliaInOneWorker(LoadFileScheduling):
    """Hands out files as `--dist loadfile` does, and those for Julia to the last worker.

    What Julia has loaded and compiled for a test it has for the next ones, too, but only in its own
    process. The others take such files when they have no other ones left, and so the latest.
    """

    def _assign_work_unit(self, node: Any) -> None:
        with_julia = node is self.nodes[-1]
        fitting = [file for file in self.workqueue if ("/bridge/" in file) == with_julia]
        if fitting:
            self.workqueue.move_to_end(fitting[0], last=False)
        super()._assign_work_unit(node)
