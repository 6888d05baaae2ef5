"""Table 6 of the paper on stale weights: memory of residual networks in a pipeline of two stages."""

from __future__ import annotations

import argparse
from typing import Any

from bppsa_cupy.devices import get_device
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import Placement
from bppsa_cupy.pipeline.torchsummary import MIB, summary
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.machine import provenance
from bppsa_cupy.tools.figures.pipeline_cases import TABLE5
from bppsa_cupy.tools.lines import aligned

#: The paper's activations of a sample and weights, MiB, and increase, percent, by network.
TABLE6 = {
    "resnet20": (3.84, 1.03, 67),
    "resnet56": (10.87, 3.25, 58),
    "resnet110": (21.43, 6.59, 57),
    "resnet224": (43.70, 13.64, 57),
    "resnet362": (70.67, 22.17, 57),
}


def run(arguments: argparse.Namespace) -> None:
    """Count, print, and write pipeline-6.json."""
    device = get_device(arguments.device)
    rows: list[dict[str, Any]] = []
    for model, (activations, weights, increase) in TABLE6.items():
        ppv = TABLE5[model][0]
        found = summary(Placement(build_model(model, device=device), ppv))
        rows.append(
            {
                "model": model,
                "ppv": list(ppv),
                "activations": sum(found.activations) / MIB,
                "weights": found.weights / MIB,
                "increase_percent": 100 * found.share,
                "paper": {"activations": activations, "weights": weights, "increase_percent": increase},
            }
        )
    name = f"pipeline-{arguments.table}"
    facts = {"name": name, "command": arguments.command, **provenance(device, device.workers)}
    cli.write_json(
        arguments.out / f"{name}.json", {**facts, "unit": "MiB, activations of a sample", "rows": rows}
    )
    lines = [["model", "ppv", "activations", "paper", "weights", "paper", "increase", "paper"]]
    for row in rows:
        theirs = row["paper"]
        lines.append(
            [
                row["model"], ",".join(map(str, row["ppv"])),
                f"{row['activations']:.2f} MiB", f"{theirs['activations']:.2f}",
                f"{row['weights']:.2f} MiB", f"{theirs['weights']:.2f}",
                f"{row['increase_percent']:.1f} %", f"{theirs['increase_percent']}",
            ]
        )  # fmt: skip
    print("\n".join(aligned(lines, "<<>>>>>>")))
