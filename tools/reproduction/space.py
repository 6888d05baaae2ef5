"""Space a device takes (paper, section 3.6 and appendix B): the formulae, and simulated schedules.

The unit of pipelines is one layer's activations of a sample, M_x; that of the scan one transposed Jacobian,
M_Jacob. n = L layers lie on p = K devices in equal parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.pipeline.schedules import make_schedule
from bppsa_cupy.plan.algorithms import blelloch
from bppsa_cupy.plan.partition import Partition, place
from bppsa_cupy.plan.schedule import Schedule

#: By name: the space of L layers on K devices, and its formula as text.
FORMULAE = {
    "BPPSA": (lambda layers, devices: max(layers / devices, 1.0), "max(n/p, 1) · M_Jacob"),
    "GPipe": (lambda layers, devices: layers / devices + devices, "(L/K + K) · M_x"),
    "PipeDream": (lambda layers, devices: float(layers), "K · (L/K) · M_x"),
}


def simulated_space(layers: int, devices: Sequence[int]) -> dict[str, Any]:
    """By number of devices: what the fullest device holds, from the schedules' own actions.

    GPipe keeps the input of its part for each micro-batch that is alive, as many as there are devices, and
    the activations of one while it makes them again; PipeDream all activations of every batch that is
    alive, and versions of its weights; BPPSA the matrices of its part of the scan.
    """
    found: dict[str, Any] = {
        "layers": layers, "devices": list(devices), "weight_versions": [], **{name: [] for name in FORMULAE}
    }  # fmt: skip
    for count in devices:
        part = layers / count
        gpipe = make_schedule("gpipe", count, 2, count)
        alive = max(gpipe.live_passes(stage) for stage in range(count))
        found["GPipe"].append(part + alive)
        dream = make_schedule("pipedream", count, 3 * count)
        found["PipeDream"].append(part * max(dream.live_passes(stage) for stage in range(count)))
        found["weight_versions"].append(1 + max(dream.stashed_versions(stage) for stage in range(count)))
        found["BPPSA"].append(matrices_held(blelloch(layers), count))
    return found


def matrices_held(schedule: Schedule, ranks: int) -> int:
    """The most matrices that a rank holds at once: its own part of the chain and products it has made, each
    until its last reader, and what it is sent, for the level that reads it."""
    n = schedule.n
    bounds = Partition.equal(n, ranks).bounds
    owners = np.repeat(np.arange(ranks), np.diff(bounds))
    workers = (
        place(schedule, owners, ranks).schedule.table[:, -1] if ranks > 1 else np.zeros(len(schedule.steps))
    )
    owner_of = {(k, k + 1): int(owners[k - 1]) for k in range(1, n + 1)}
    born = {segment: 0 for segment in owner_of}
    last: dict[tuple[int, int], int] = {}
    visits: set[tuple[int, int, tuple[int, int]]] = set()
    for step, worker in zip(schedule.steps, workers.tolist(), strict=True):
        if step.begin > 0:
            owner_of[step.begin, step.end], born[step.begin, step.end] = int(worker), step.level
        for segment in ((step.begin, step.split), (step.split, step.end)):
            if segment[0] > 0:
                last[segment] = max(last.get(segment, 0), step.level)
                if owner_of[segment] != worker:
                    visits.add((int(worker), step.level, segment))
    depth = max((step.level for step in schedule.steps), default=0) + 1
    held = np.zeros((ranks, depth), np.int64)
    for segment, level in last.items():
        held[owner_of[segment], born[segment] : level + 1] += 1
    for worker, level, _ in visits:
        held[worker, level] += 1
    return int(held.max(initial=0))
