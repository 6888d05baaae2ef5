"""Steps for the tests of the harness; importable in another process."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import PlanError
from bppsa_cupy.tools.benchmarks.harness import OVERALL, Step


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


def scripted(*seconds: float, reset: bool = False, per: float = 1.0) -> Step:
    """A step whose parts take these seconds; it counts its runs and resets."""
    clock, counts = Clock(), {"runs": 0, "resets": 0}

    def run(taken: float, first: bool) -> None:
        counts["runs"] += first
        clock.now += taken

    def count_reset() -> None:
        counts["resets"] += 1
        clock.now += 100.0

    names = [OVERALL] if len(seconds) == 1 else [f"part {k}" for k in range(len(seconds))]
    parts: dict[str, Callable[[], object]] = {
        name: partial(run, one, not k) for k, (name, one) in enumerate(zip(names, seconds, strict=True))
    }
    device: object = clock
    return Step(parts, lambda: counts, device, reset=count_reset if reset else None, per=per)  # type: ignore[arg-type]


def squares(offset: float) -> Step:
    """Squares, on the host."""
    values = np.zeros(5)

    def run() -> None:
        np.square(np.arange(5), out=values)
        values[...] += offset

    return Step({OVERALL: run}, lambda: {"values": values}, get_device("host"))


def refused() -> Step:
    """Cannot be built."""
    raise PlanError("a plan of 9 bytes was asked for, 8 are free")


def ends_its_process() -> Step:
    """Ends its process."""
    os._exit(7)
