"""Workloads for the tests of the harness; importable in a process of its own."""

from __future__ import annotations

import os

import numpy as np

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.errors import PlanError
from bppsa_cupy.tools.benchmarks.workload import Lap, Workload


class Clock:
    """A device whose time is counted by hand."""

    name = "host"

    def __init__(self) -> None:
        self.now = 0.0

    def synchronize(self) -> None:
        """Nothing is under way."""

    def timestamp(self) -> float:
        return self.now

    def seconds(self, start: float, end: float) -> float:
        return end - start


class Scripted(Workload):
    """Run number k takes `seconds[k]`, the last one for ever; a tenth of a stateful one is "first"."""

    def __init__(self, seconds: list[float], stateful: bool = False) -> None:
        self.device: Device = Clock()  # type: ignore[assignment]
        self.seconds, self.stateful = list(seconds), stateful
        self.runs = self.resets = 0

    def reset(self) -> None:
        self.resets += 1
        self.device.now += 100.0  # type: ignore[attr-defined]

    def run(self, lap: Lap) -> None:
        seconds = self.seconds[min(self.runs, len(self.seconds) - 1)]
        self.runs += 1
        self.device.now += seconds / 10  # type: ignore[attr-defined]
        lap("first")
        self.device.now += seconds * 9 / 10  # type: ignore[attr-defined]
        lap("second")

    def result(self) -> dict[str, int]:
        return {"runs": self.runs, "resets": self.resets}


class Pooled(Workload):
    """Squares, on the host; remembers which process ran it and how many threads it was given."""

    def __init__(self, offset: float = 0.0, megabytes: int = 0) -> None:
        self.device = get_device("host")
        self.offset, self.held = offset, np.ones(megabytes * 2**20, np.uint8)
        self.values = np.zeros(5)

    def run(self, lap: Lap) -> None:
        np.square(np.arange(5), out=self.values)
        self.values += self.offset

    def result(self) -> dict[str, np.ndarray]:
        threads = int(os.environ["NUMBA_NUM_THREADS"])
        return {"values": self.values, "process": np.array(os.getpid()), "threads": np.array(threads)}


class Refused(Workload):
    """Cannot be built."""

    def __init__(self) -> None:
        raise PlanError("a plan of 9 bytes was asked for, 8 are free")

    def run(self, lap: Lap) -> None:
        """Is not reached."""

    def result(self) -> None:
        """Is not reached."""


class Breaking(Pooled):
    """Fails, or ends its process, in its runs."""

    def __init__(self, exit_code: int | None = None) -> None:
        super().__init__()
        self.exit_code = exit_code

    def run(self, lap: Lap) -> None:
        if self.exit_code is not None:
            os._exit(self.exit_code)
        raise RuntimeError("the run broke")
