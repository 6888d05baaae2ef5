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
from bppsa_cupy.tools.pictures.picture_file import picture
from bppsa_cupy.tools.reproduction.curves import picture_path, train_by_us, write_result
from bppsa_cupy.training.loop import evaluate
from bppsa_cupy.training.optimizers import Adam
from bppsa_cupy.training.settings import Settings

#: A colour, a mark and a name for each cell.
STYLES = {"rnn": ("C0", "o", "RNN, tanh"), "gru": ("C1", "s", "GRU"), "lstm": ("C2", "^", "LSTM")}
CELLS = tuple(STYLES)


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
    write_result(arguments, device, facts)
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
        train_by_us(network, replace(dataset, test=None), replace(settings, seed=seed), optimizer)
        row["accuracies"].append(evaluate(network, tested, 256)[1])
        row["trained_exponents"].append(largest_exponent(chain_of(network, tested, arguments.sequences)))
    return row


def set_radius(network: Sequential, radius: float) -> None:
    """Scale each gate's square block of the recurrent layer's W_hh to a spectral radius."""
    name = "0.weight_hh_l0"
    weight = network.state_dict()[name]
    for block in np.split(weight, len(weight) // weight.shape[1]):  # views
        block *= radius / np.abs(np.linalg.eigvals(block.astype(np.float64))).max()
    network.parameters[name] = weight


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


def plot(facts: dict[str, Any], path: Path) -> None:
    """Draw the result's JSON: gradients on their way back, a panel a cell; exponents and accuracies."""
    by_cell: dict[str, list[dict[str, Any]]] = {}
    for row in facts["rows"]:
        by_cell.setdefault(row["cell"], []).append(row)
    with picture(path, 2, 3, save={"dpi": 130}, figsize=(10, 6.4), layout="constrained") as (figure, axes):
        for panel, (cell, rows) in zip(axes[0], by_cell.items(), strict=True):
            _draw_norms(panel, STYLES[cell][2], rows)
        low = min(panel.get_ylim()[0] for panel in axes[0])
        high = max(panel.get_ylim()[1] for panel in axes[0])
        for panel in axes[0]:
            panel.set_ylim(low, high)
        axes[0, 0].set_ylabel("norm of ∂s$_{last}$/∂s$_t$")
        exponents, accuracies, both = axes[1]
        for cell, rows in by_cell.items():
            _draw_by_radius(exponents, accuracies, both, cell, rows)
        for panel in (exponents, both):
            draw_zero = panel.axhline if panel is exponents else panel.axvline
            draw_zero(0, color="0.35", linestyle="--", linewidth=0.9)
        exponents.plot([], [], "k-", label="before training")
        exponents.plot([], [], "k:", label="after training")
        chosen = [row["radius"] for row in next(iter(by_cell.values()))]
        for panel in (exponents, accuracies):
            panel.set_xscale("log")
            panel.set_xticks(chosen, [f"{radius:g}" for radius in chosen])
            panel.set_xticks([], minor=True)
            panel.set_xlabel("spectral radius of W$_{hh}$ before training")
        exponents.set_ylabel("largest Lyapunov exponent, 1 / step")
        accuracies.set_ylabel("accuracy after training, %")
        both.set(xlabel="largest exponent before training, 1 / step", ylabel="accuracy after training, %")
        for panel in axes.flat:
            panel.grid(color="0.92")
            panel.set_axisbelow(True)
            panel.tick_params(labelsize=8)
            panel.legend(fontsize=8)
        name, steps = facts["data"]["name"], facts["data"]["steps"]
        figure.suptitle(f"{name}: sequences of up to {steps} steps", fontsize=11)


def _draw_norms(panel: Any, name: str, rows: list[dict[str, Any]]) -> None:
    from matplotlib import colormaps
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for place, row in enumerate(rows):
        colour = colormaps["plasma"](0.9 * place / max(1, len(rows) - 1))
        logs = np.maximum(row["log10_norms"], -400)
        panel.plot(np.arange(len(logs)), logs, color=colour, label=f"radius {row['radius']:g}")
    panel.axhline(0, color="0.35", linestyle="--", linewidth=0.9)
    panel.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$10^{{{value:.0f}}}$"))
    panel.set_xlabel("steps back from the end")
    panel.set_title(name, fontsize=10)


def _draw_by_radius(
    exponents: Any, accuracies: Any, both: Any, cell: str, rows: list[dict[str, Any]]
) -> None:
    colour, mark, name = STYLES[cell]
    chosen = [row["radius"] for row in rows]
    for key, style in (("exponents", "-"), ("trained_exponents", ":")):
        values = [np.median(row[key]) for row in rows]
        label = name if style == "-" else None
        exponents.plot(chosen, values, style, marker=mark, color=colour, markersize=4, label=label)
    means, least, most = (
        np.array([100 * reduce(row["accuracies"]) for row in rows]) for reduce in (np.mean, np.min, np.max)
    )
    bars = {"yerr": (means - least, most - means), "capsize": 2, "elinewidth": 0.8, "markersize": 4}
    accuracies.errorbar(chosen, means, marker=mark, color=colour, label=name, **bars)
    started = [np.median(row["exponents"]) for row in rows]
    both.errorbar(started, means, fmt=mark, color=colour, label=name, **bars)
