"""Figure 13: the GRU on features of audio, by our backward pass and by PyTorch, from the same parameters on
the same batches; and its test accuracy, beside a linear model's on the features' means where these are
not normalised away.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, Split, load
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.files import write_text
from bppsa_cupy.tools.benchmarks.machine import describe_machine, versions
from bppsa_cupy.tools.figures import sequence_curves
from bppsa_cupy.tools.figures.curves import import_pyplot
from bppsa_cupy.tools.figures.picture_file import check_picture, save_figure
from bppsa_cupy.tools.figures.torch_training import import_torch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure13`."""
    parser.add_argument(
        "--data", type=Path, required=True, nargs="+", metavar="FILE", help="features of bppsa-data audio"
    )
    sequence_curves.add_options(parser, epochs=15, lr=1e-3)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Train on each file in both dtypes, compare, and write figure13.json and figure13.png."""
    import_torch()
    device = get_device(arguments.device)
    arguments.out.mkdir(parents=True, exist_ok=True)
    picture = arguments.out / "figure13.png"
    check_picture(picture)
    pyplot = import_pyplot()
    arguments.progress = sys.stderr.isatty()
    cases = [(load(path), dtype) for path in arguments.data for dtype in ("float64", "float32")]
    rows = len(cases)
    figure, axes = pyplot.subplots(rows, 3, figsize=(14, 3.5 * rows), layout="constrained", squeeze=False)
    found: list[dict[str, Any]] = []
    for row, (dataset, dtype) in zip(axes, cases, strict=True):
        curves, comparison = sequence_curves.train_all(arguments, dataset, "gru", dtype)
        sequence_curves.draw(row, curves, comparison, f"GRU on {dataset.name}, {dtype}")
        sequence_curves.report(f"{dataset.name} {dtype}", comparison)
        facts: dict[str, Any] = {"name": dataset.name, "dtype": dtype, "samples": len(dataset.train)}
        if dataset.test is not None:
            reached = {
                run: curves[run].accuracy for run in (*sequence_curves.METHODS, sequence_curves.PYTORCH)
            }
            if dataset.normalization is not None:
                facts["linear_accuracy"] = linear_accuracy(dataset)
                reached["a linear model on the features' means"] = facts["linear_accuracy"]
            accuracies = ", ".join(f"{name} {value:.1%}" for name, value in reached.items())
            print(f"{dataset.name} {dtype}: test accuracy: {accuracies}")
        found.append({"data": facts, "comparison": comparison, "curves": sequence_curves.as_json(curves)})
    result = {
        "name": "figure13",
        "command": arguments.command,
        "settings": sequence_curves.settings_of(arguments),
        "device": device.name,
        "machine": describe_machine(device, device.workers),
        "versions": versions(device),
        "rows": found,
    }
    write_text(arguments.out / "figure13.json", json.dumps(result) + "\n")
    save_figure(figure, picture, dpi=110)
    pyplot.close(figure)


def linear_accuracy(dataset: Dataset) -> float:
    """Test accuracy of scikit-learn's logistic regression on each sample's mean over its steps.

    Raises BppsaError where scikit-learn is missing.
    """
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as cause:
        raise BppsaError(
            f"the linear model takes scikit-learn, which cannot be imported ({cause}): install the extra demo"
        ) from cause
    assert dataset.test is not None
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(_means(dataset.train), dataset.train.labels)
    return float(model.score(_means(dataset.test), dataset.test.labels))


def _means(split: Split) -> np.ndarray:
    """(N, F) float64: the mean over the steps that are no padding."""
    inputs = split.inputs.astype(np.float64)
    if split.lengths is None:
        return np.asarray(inputs.mean(axis=1))
    padding = np.arange(inputs.shape[1]) >= split.lengths[:, None]
    inputs[padding] = 0
    return np.asarray(inputs.sum(axis=1) / split.lengths[:, None])
