"""Figure 7: the RNN on bitstreams, by our backward pass and by PyTorch, from the same parameters on the
same batches: losses and wall-clock time.

The paper trains with a learning rate of 1e-5 for 80 epochs of 2,000 steps; a larger one shows the same in
less time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bppsa_cupy.devices import get_device
from bppsa_cupy.tools.figures import sequence_curves
from bppsa_cupy.tools.figures.result_file import write_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure7`."""
    parser.add_argument("--data", type=Path, required=True, help="bitstreams of bppsa-data, T = 1000")
    sequence_curves.add_options(parser, epochs=3, lr=3e-4)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Train in both dtypes, compare, and write figure7.json and figure7.png."""
    facts: dict[str, Any] = {"comparison": {}, "curves": {}}
    with sequence_curves.trained(arguments, "rnn", [arguments.data]) as cases:
        for dataset, dtype, curves, comparison in cases:
            facts["comparison"][dtype] = comparison
            facts["curves"][dtype] = sequence_curves.as_json(curves)
            sequence_curves.report(dtype, comparison)
            given = {"data": {"name": dataset.name, "samples": len(dataset.train)}}
        write_result(arguments, get_device(arguments.device), sequence_curves.SETTINGS, facts, given=given)
