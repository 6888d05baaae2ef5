"""Steps for the tests of the harness; importable in another process."""

from __future__ import annotations

import os

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import PlanError
from bppsa_cupy.tools.benchmarks.harness import OVERALL, Step


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
