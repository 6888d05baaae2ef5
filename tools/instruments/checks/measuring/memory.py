"""Memory of a process that trains for long."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import bppsa_cupy as bp

PAGE = 4096


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * PAGE


def train(marks: tuple[int, ...], method: str = "blelloch") -> list[int]:
    """Resident bytes after the steps in `marks`: of a small convolutional network with a recurrent one
    beside it, in batches of two sizes, by scan."""
    images = bp.Sequential(
        [bp.Conv2d(1, 4, 3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(36, 10)],
        (1, 8, 8),
        device="host",
    ).train()
    images.use(images.plan(batch_size=8))
    sequences = bp.Sequential(
        [bp.GRU(3, 8, outputs="last"), bp.Linear(8, 10)], (40, 3), device="host"
    ).train()
    networks = [(net, bp.Adam(net.parameters, lr=1e-3)) for net in (images, sequences)]
    rng, found = np.random.default_rng(0), []
    for step in range(1, marks[-1] + 1):
        batch = 8 if step % 5 else 3
        labels = rng.integers(0, 10, batch)
        for net, optimizer in networks:
            x = rng.standard_normal((batch, *net.input_shape)).astype(np.float32)
            _, gradient = bp.cross_entropy(net.forward(x, into=net.last_pass), labels, device=net.device)
            net.backward(gradient, method)
            optimizer.step(net.gradients)
        if step in marks:
            found.append(resident())
    return found
