"""Bits by the number of threads: prints digests of what a few training steps leave, for NUMBA_NUM_THREADS.

Run as a program, since a process has one number of threads. Plans are made for two workers and chunks of
steps for eight threads, whatever there are: by another schedule or other chunks sums are taken in another
order.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.devices.host import HostDevice

#: Networks, and the methods whose steps must leave the same bits.
NETWORKS = {
    "convolutions": (
        lambda: [
            bp.Conv2d(3, 8, 3, padding=1), bp.BatchNorm2d(8), bp.ReLU(), bp.MaxPool2d(2), bp.Conv2d(8, 8, 3),
            bp.Tanh(), bp.AvgPool2d(2), bp.Flatten(), bp.Linear(32, 10),
        ],
        (3, 12, 12),
    ),
    "GRU": (lambda: [bp.GRU(5, 20, outputs="last"), bp.Linear(20, 10)], (60, 5)),
    "LSTM": (lambda: [bp.LSTM(5, 33, num_layers=2, outputs="last"), bp.Linear(33, 10)], (60, 5)),
}  # fmt: skip
METHODS = ("bp", "linear", "blelloch")


@patch.object(HostDevice, "workers", 8)
def digest(network: str, method: str, batch: int = 37, steps: int = 2) -> str:
    """Of the parameters and the gradients after some steps of Adam."""
    make, shape = NETWORKS[network]
    net = bp.Sequential(make(), shape, seed=0, device="host").train()
    if method != "bp":
        net.use(net.plan(batch_size=batch, workers=2))
    optimizer, rng = bp.Adam(net.parameters), np.random.default_rng(1)
    for _ in range(steps):
        x, labels = rng.standard_normal((batch, *shape)).astype(np.float32), rng.integers(0, 10, batch)
        _, gradient = bp.cross_entropy(net.forward(x), labels)
        net.backward(gradient, method)
        optimizer.step(net.gradients)
    found = hashlib.sha256()
    for arrays in (net.state_dict(), net.gradients.to_host()):
        for name, array in arrays.items():
            found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def digests(threads: int, networks: tuple[str, ...] = tuple(NETWORKS)) -> dict[str, str]:
    """Every network by every method, in a process with so many threads."""
    environment = os.environ | {"NUMBA_NUM_THREADS": str(threads), "BPPSA_QUIET": "1"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), *networks],
        env=environment, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


if __name__ == "__main__":
    names = [(network, method) for network in sys.argv[1:] for method in METHODS]
    print(json.dumps({f"{network}, {method}": digest(network, method) for network, method in names}))
