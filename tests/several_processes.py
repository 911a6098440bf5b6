"""Run a program in several processes that are one JAX together."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence


def run_together(command: Sequence[str], *, count: int, devices: int, limit: float) -> list[str]:
    """Start a command in several processes and return what each of them printed.

    Each gets three more arguments, which are those of `jax.distributed.initialize`: the address
    of the coordinator, the number of processes, and its own number.

    Args:
        command: the program and its arguments.
        count: how many processes.
        devices: how many devices each has.
        limit: seconds, after which all are ended. So they are when one has failed: the others
            would wait for it.
    """
    address = f"localhost:{_free_port()}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = {**os.environ, "XLA_FLAGS": flags}
    outputs = [tempfile.TemporaryFile("w+") for _ in range(count)]
    processes = [
        subprocess.Popen(
            [*command, address, str(count), str(number)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
        )
        for number, output in enumerate(outputs)
    ]
    end = time.monotonic() + limit
    try:
        while time.monotonic() < end:
            codes = [process.poll() for process in processes]
            if any(codes) or None not in codes:
                break
            time.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    codes = [process.returncode for process in processes]
    printed = [_text(output) for output in outputs]
    assert not any(codes), "\n".join([f"return codes {codes}, of killed ones -9", *printed])
    return printed


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def _text(output) -> str:
    with output:
        output.seek(0)
        return output.read()
