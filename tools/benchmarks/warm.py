"""Compile ahead what models take, so that their first run starts at once; and how long it took."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.devices import get_device
from bppsa_cupy.models import MODELS, build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.system.compilation import kept_in
from bppsa_cupy.system.units import counted
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.lines import aligned
from bppsa_cupy.tools.machine import available_cores, provenance
from bppsa_cupy.training.clipping import clip_grad_norm
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import SGD, Adam, AdamW

#: Models whose kernels are compiled where none are named; the others' are among them.
USUAL = ("lenet5", "resnet20", "rnn", "gru", "lstm")
#: Steps of a sequence, and samples of the batches that are run: one, and as many as fill vectors.
STEPS, BATCHES = 6, (1, 16)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL …, --dtype and --device."""
    parser.add_argument(
        "models", nargs="*", metavar="MODEL",
        help=f"{', '.join(MODELS)}, path/to/file.py:factory or module:factory (default {' '.join(USUAL)})",
    )  # fmt: skip
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    cli.add_device(parser)


def make_report(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was run for each model, and the seconds it took."""
    device = get_device(arguments.device)
    models = arguments.models or USUAL
    rows: list[dict[str, Any]] = []
    with tqdm(total=len(models), unit="model", disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:
        for name in models:
            bar.set_description(name)
            started = time.perf_counter()
            ran = sum(1 for _ in work(build_model(name, dtype=arguments.dtype, device=device)))
            rows.append({"model": name, "passes": ran, "seconds": time.perf_counter() - started})
            bar.update()
    return {
        "name": arguments.name,
        "command": arguments.command,
        "kept_in": str(kept_in()),
        **provenance(device, available_cores()),
        "rows": rows,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """A line a model, and where it is kept."""
    lines = [("model", "time", "")]
    for row in rows:
        lines.append(
            (row["model"], f"{row['seconds']:.1f} s", f"{counted(row['passes'], 'pass', 'passes')} run")
        )
    total = f"ready in {sum(row['seconds'] for row in rows):.1f} s; kept in {kept_in()}"
    return "\n".join([*aligned(lines, "<><"), total])


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
    if not network.needs_plan:
        return ()
    plan = network.plan(1, batch_size=1, schedules=("linear", "hybrid"))
    network.use(plan)
    return plan.schedules
