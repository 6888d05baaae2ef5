"""Figure 7: the RNN on bitstreams, by our backward pass and by PyTorch, from the same parameters on the
same batches: losses and wall-clock time.

The paper trains with a learning rate of 1e-5 for 80 epochs of 2,000 steps; a larger one shows the same in
less time.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bppsa_cupy.data import load
from bppsa_cupy.devices import get_device
from bppsa_cupy.system.files import write_text
from bppsa_cupy.tools.benchmarks.machine import describe_machine, versions
from bppsa_cupy.tools.figures import sequence_curves
from bppsa_cupy.tools.figures.curves import import_pyplot
from bppsa_cupy.tools.figures.picture_file import check_picture, save_figure
from bppsa_cupy.tools.figures.torch_training import import_torch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure7`."""
    parser.add_argument("--data", type=Path, required=True, help="bitstreams of bppsa-data, T = 1000")
    sequence_curves.add_options(parser, epochs=3, lr=3e-4)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Train in both dtypes, compare, and write figure7.json and figure7.png."""
    import_torch()
    device = get_device(arguments.device)
    arguments.out.mkdir(parents=True, exist_ok=True)
    picture = arguments.out / "figure7.png"
    check_picture(picture)
    pyplot = import_pyplot()
    arguments.progress = sys.stderr.isatty()
    dataset = load(arguments.data)
    figure, axes = pyplot.subplots(2, 3, figsize=(14, 7), layout="constrained")
    result = {
        "name": "figure7",
        "command": arguments.command,
        "settings": sequence_curves.settings_of(arguments),
        "data": {"name": dataset.name, "samples": len(dataset.train)},
        "device": device.name,
        "machine": describe_machine(device, device.workers),
        "versions": versions(device),
        "comparison": {},
        "curves": {},
    }
    for row, dtype in zip(axes, ("float64", "float32"), strict=True):
        curves, comparison = sequence_curves.train_all(arguments, dataset, "rnn", dtype)
        result["comparison"][dtype] = comparison
        result["curves"][dtype] = sequence_curves.as_json(curves)
        sequence_curves.draw(row, curves, comparison, f"RNN on {dataset.name}, {dtype}")
        sequence_curves.report(dtype, comparison)
    write_text(arguments.out / "figure7.json", json.dumps(result) + "\n")
    save_figure(figure, picture, dpi=110)
    pyplot.close(figure)
