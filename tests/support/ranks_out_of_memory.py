"""Ranks on a stand-in for CuPy, of which one runs out of memory: `ranks_out_of_memory.py WAY FOLDER RANK`.

Prints "full" on that rank, with the time, when its memory has ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import cupy_stub
import numpy as np
from cupy_stub_memory import Memory
from pipeline_networks import data

import bppsa_cupy as bp
from bppsa_cupy.devices import cubins
from bppsa_cupy.distributed import Group, guard
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


def network(group: Group) -> bp.Sequential:
    layers = [bp.Linear(3, 4), bp.Tanh(), bp.Linear(4, 3)]
    return bp.Sequential(layers, (3,), seed=0, dtype="float64", device=group.device)


def by_layers(group: Group) -> Callable[[], object]:
    net = bp.distribute(network(group), group, bp.Partition((0, 2, 3)))
    optimizer = bp.SGD(net.parameters)
    return lambda: train(net, data(8, (3,)), optimizer, Settings(method="bp", batch_size=2, clip=1.0))


def by_stages(group: Group) -> Callable[[], object]:
    pipeline = bp.Pipeline(network(group), (1,), "stale", group)
    optimizer = bp.SGD(pipeline.network.parameters, momentum=0.9)
    return lambda: train(pipeline, data(8, (3,)), optimizer, Settings(batch_size=2))


def by_evaluation(group: Group) -> Callable[[], object]:
    net = bp.Pipeline(network(group), (1,), "stale", group).network.eval()
    return lambda: net.forward(np.ones((2, 3)))


def main() -> None:
    way, folder, full = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    with guard():
        sys.modules["cupy"] = cupy_stub.make_cupy(devices=2)
        cubins.kept_in = lambda: folder / str(group.rank)
        group = Group(device="cuda")
        work = {"layers": by_layers, "stages": by_stages, "evaluation": by_evaluation}[way]
        work(group)()  # loads the kernels
        counted, ended = work(group), work(group)
        with Memory.ending_after(None):
            counted()
            count = Memory.taken
        group.barrier()
        with Memory.ending_after(count // 2 if group.rank == full else None):
            try:
                ended()
            except DeviceError:
                print(f"full {time.time()}", flush=True)
                raise


if __name__ == "__main__":
    main()
