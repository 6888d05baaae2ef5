"""Figure 13: the GRU on features of audio, by our backward pass and by PyTorch, from the same parameters on
the same batches; and its test accuracy, beside a linear model's on the features' means where these are
not normalised away.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, Split
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools.figures import sequence_curves
from bppsa_cupy.tools.figures.result_file import write_result
from bppsa_cupy.tools.figures.torch_training import PYTORCH


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure13`."""
    parser.add_argument(
        "--data", type=Path, required=True, nargs="+", metavar="FILE", help="features of bppsa-data audio"
    )
    sequence_curves.add_options(parser, epochs=15, lr=1e-3)


def run(arguments: argparse.Namespace) -> None:
    """Train on each file in both dtypes, compare, and write figure13.json and figure13.png."""
    rows: list[dict[str, Any]] = []
    with sequence_curves.trained(arguments, "gru", arguments.data) as cases:
        for dataset, dtype, curves, comparison in cases:
            sequence_curves.report(f"{dataset.name} {dtype}", comparison)
            facts: dict[str, Any] = {"name": dataset.name, "dtype": dtype, "samples": len(dataset.train)}
            if dataset.test is not None:
                runs = (*sequence_curves.METHODS, PYTORCH)
                reached = {run: curves[run].accuracy for run in runs}
                if dataset.normalization is not None:
                    facts["linear_accuracy"] = linear_accuracy(dataset)
                    reached["a linear model on the features' means"] = facts["linear_accuracy"]
                accuracies = ", ".join(f"{name} {value:.1%}" for name, value in reached.items())
                print(f"{dataset.name} {dtype}: test accuracy: {accuracies}")
            losses = sequence_curves.as_json(curves)
            rows.append({"data": facts, "comparison": comparison, "curves": losses})
        write_result(arguments, get_device(arguments.device), sequence_curves.SETTINGS, {"rows": rows})


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
