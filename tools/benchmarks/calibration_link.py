"""The link between two ranks, measured by messages there and back."""

from __future__ import annotations

import statistics
import time

import numpy as np

from bppsa_cupy.distributed import Group
from bppsa_cupy.plan.cost_model import Link

#: Bytes of the message that tells the latency, and of the one that tells the bandwidth.
SMALL, LARGE = 8, 10_000_000
#: Round trips of the small message; of the large one a tenth.
TRIPS = 1000


def measure_link(group: Group, trips: int = TRIPS) -> Link:
    """The link between ranks 0 and 1, which both call this; medians over round trips.

    latency is half a round trip of SMALL bytes; bytes_per_second follows from LARGE ones, whose half round
    trip takes that longer.
    """
    latency = _half_round_trip(group, SMALL, trips)
    longer = _half_round_trip(group, LARGE, max(trips // 10, 3)) - latency
    return Link(latency, LARGE / max(longer, 1e-9))


def _half_round_trip(group: Group, nbytes: int, trips: int) -> float:
    """Seconds of a message of so many bytes, one way; the first trips, which set up, are not counted."""
    array = group.device.empty((nbytes // 4,), np.dtype(np.float32))
    array[...] = 0
    warm = max(trips // 10, 2)
    seconds = []
    for _ in range(warm + trips):
        start = time.perf_counter()
        if group.rank == 0:
            group.send(array, 1)
            group.receive(array, 1)
        else:
            group.receive(array, 0)
            group.send(array, 0)
        group.device.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[warm:]) / 2
