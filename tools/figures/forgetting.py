"""Why recurrent networks forget: gradients on their way back over real sequences, by cell and by the spectral
radius that W_hh starts with, and what training then reaches.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, Split, batches, load
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import DataError
from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.records.lyapunov import lyapunov_exponents
from bppsa_cupy.records.records import JacobianRecords
from bppsa_cupy.records.spectra import log_gradient_norms
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.figures.forgetting_picture import plot
from bppsa_cupy.tools.figures.result_file import picture_path, write_result
from bppsa_cupy.training.loop import evaluate, train
from bppsa_cupy.training.optimizers import Adam
from bppsa_cupy.training.settings import Settings

CELLS = ("rnn", "gru", "lstm")
#: The options that the numbers follow from.
SETTINGS = ("radii", "hidden_size", "sequences", "seeds", "epochs", "batch_size", "lr", "clip")


def radii(text: str) -> list[float]:
    """The argument type of spectral radii: "0.5,1,2"."""
    try:
        found = sorted({float(one) for one in text.split(",")})
    except ValueError:
        found = []
    if not found or not 0 < found[0] <= found[-1] < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} are no radii: give numbers above 0 as 0.5,1,2")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce forgetting`."""
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FILE", help="sequences of bppsa-data audio or bitstream"
    )
    parser.add_argument(
        "--radii", type=radii, default="0.3,0.6,1,1.5,2,3", metavar="R,R", help="of W_hh (default 0.3 to 3)"
    )
    parser.add_argument("--hidden-size", type=cli.positive, default=20, metavar="H", help="(default 20)")
    parser.add_argument(
        "--sequences", type=cli.positive, default=64, metavar="N", help="that are looked at (default 64)"
    )
    parser.add_argument("--seeds", type=cli.positive, default=3, metavar="N", help="networks (default 3)")
    parser.add_argument("--epochs", type=cli.not_negative, default=10, help="of training (default 10)")
    parser.add_argument("--batch-size", type=cli.positive, default=16, help="(default 16)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of Adam (default 0.001)")
    parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradients (default 1)")


def run(arguments: argparse.Namespace) -> None:
    """Look at each cell and radius before training and after it; write forgetting.json and .png."""
    device, path, dataset = get_device(arguments.device), picture_path(arguments), load(arguments.data)
    if len(dataset.input_shape) != 2 or dataset.per_step:
        raise DataError(
            f"{dataset.name} holds inputs of shape {dataset.input_shape}"
            f"{', and labels at every step' if dataset.per_step else ''}: the figure takes sequences (T, F) "
            "with a label each, as bppsa-data audio makes them"
        )
    rows = []
    for cell in CELLS:
        for radius in arguments.radii:
            row = look_at(cell, radius, dataset, arguments)
            rows.append(row)
            first, later = (np.median(row[name]) for name in ("exponents", "trained_exponents"))
            print(
                f"{cell} {radius:g}: largest Lyapunov exponent {first:.3f} a step, trained {later:.3f}; "
                f"test accuracy {np.mean(row['accuracies']):.1%}",
                flush=True,
            )
    facts = {"data": {"name": dataset.name, "steps": dataset.input_shape[0]}, "rows": rows}
    write_result(arguments, device, SETTINGS, facts)
    plot(facts, path)


def look_at(cell: str, radius: float, dataset: Dataset, arguments: argparse.Namespace) -> dict[str, Any]:
    """A row of the result: a cell whose W_hh starts with a spectral radius.

    exponents, trained_exponents  the largest Lyapunov exponent a step, the median of the sequences: of each
                   seed's network, before training and after it
    log10_norms    by steps back from the end, of the first seed's network before training: the median over
                   those sequences that are so long of log10 ‖∂s_last/∂s‖, as long as half of them are
    accuracies     of each seed's trained network, on the test samples or, without any, the training ones
    """
    row: dict[str, Any] = {"cell": cell, "radius": radius}
    row |= {"exponents": [], "trained_exponents": [], "accuracies": [], "log10_norms": []}
    settings = Settings(**cli.taken(arguments, "epochs", "batch_size", "clip"), progress=sys.stderr.isatty())
    tested = dataset.train if dataset.test is None else dataset.test
    for seed in range(arguments.seeds):
        options = cli.taken(arguments, "hidden_size", "device")
        network = build_model(cell, dataset.input_shape, classes=dataset.classes, seed=seed, **options)
        set_radius(network, radius)
        chain = chain_of(network, tested, arguments.sequences)
        row["exponents"].append(largest_exponent(chain))
        if not seed:
            row["log10_norms"] = norms_back(chain)
        optimizer = Adam(network.parameters, lr=arguments.lr)
        train(network, replace(dataset, test=None), optimizer, replace(settings, seed=seed))
        row["accuracies"].append(evaluate(network, tested, 256)[1])
        row["trained_exponents"].append(largest_exponent(chain_of(network, tested, arguments.sequences)))
    return row


def set_radius(network: Sequential, radius: float) -> None:
    """Scale each gate's square block of the recurrent layer's W_hh to a spectral radius."""
    name = "0.weight_hh_l0"
    weight = network.state_dict()[name]
    for block in np.split(weight, len(weight) // weight.shape[1]):  # views
        block *= radius / np.abs(np.linalg.eigvals(block.astype(np.float64))).max()
    network.parameters[name][...] = network.device.asarray(weight)


def chain_of(network: Sequential, split: Split, count: int) -> JacobianRecords:
    """The step Jacobians of the recurrent layer on `count` samples, or all if there are fewer."""
    batch = next(batches(split, min(count, len(split)), dtype=network.dtype))
    network.forward(batch.inputs, lengths=batch.lengths)
    return network.transposed_jacobians().where(layer=0)


def largest_exponent(chain: JacobianRecords) -> float:
    """The median over the samples of the largest Lyapunov exponent."""
    return round(float(np.median(lyapunov_exponents(chain, 1))), 5)


def norms_back(chain: JacobianRecords) -> list[float]:
    """`log10_norms` of a row."""
    logs, lengths = log_gradient_norms(chain) / math.log(10), chain.lengths()
    furthest = int(np.median(lengths))
    medians = []
    for back in range(furthest):
        reached = lengths > back
        medians.append(round(float(np.median(logs[lengths[reached] - 1 - back, reached])), 3))
    return medians
