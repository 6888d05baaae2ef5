"""Compile ahead what models take, so that their first run starts at once; and how long it took."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
from tqdm import tqdm

from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.system.compilation import kept_in
from bppsa_cupy.system.units import counted
from bppsa_cupy.tools.benchmarks.harness import Row
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import SGD, Adam, AdamW, clip_grad_norm

#: Steps of a sequence, and samples of the batches that are run: one, and as many as fill vectors.
STEPS, BATCHES = 6, (1, 16)


def warm_models(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Run each model once; a row per model, with the time it took."""
    for name in tqdm(arguments.models, unit="model", disable=not sys.stderr.isatty(), dynamic_ncols=True):
        started = time.perf_counter()
        ran = sum(1 for _ in work(build_model(name, dtype=arguments.dtype, device=arguments.device)))
        note = f"{counted(ran, 'pass', 'passes')} run; code is in {kept_in()}"
        yield [Row(name, "compile", time.perf_counter() - started, note=note)]


def work(network: Sequential) -> Iterator[str]:
    """Make the passes of training and evaluation once, by back-propagation and by scan; gives what was run.

    Kernels are compiled by dtype and index type, whatever the sizes, and a recurrent layer's also by samples
    that share a vector: so a few samples of few steps do.
    """
    optimizers = [kind(network.parameters, lr=1e-3) for kind in (SGD, Adam, AdamW)]
    for training in (True, False):
        network.training = training
        for method, batch in (
            *(("bp", batch) for batch in BATCHES),
            *((name, 1) for name in _scans(network)),
        ):
            shape = (STEPS if size is None else size for size in network.input_shape)
            scores = network(np.zeros((batch, *shape), network.dtype))
            labels = np.zeros(scores.shape[:-1], np.int64)
            _, gradient = cross_entropy(scores, labels, device=network.device)
            network.backward(gradient, method=method)
            yield f"{method}, {counted(batch, 'sample')}"
        clip_grad_norm(network.gradients, 1.0)
        for optimizer in optimizers:
            optimizer.step(network.gradients)


def _scans(network: Sequential) -> tuple[str, ...]:
    """The schedules that the network can run in its mode, by a plan of little memory, which it uses then."""
    if not network.architecture.needs_plan:
        return ()
    plan = network.plan(1, batch_size=1, schedules=("linear", "hybrid"))
    network.use(plan)
    return plan.schedules
