"""What the single figures share: options of training, and one JSON file of numbers beside the picture."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bppsa_cupy.devices import Device
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.machine import provenance
from bppsa_cupy.tools.pictures.picture_file import check_picture

#: Types of options, and what they are where the name does not say it.
OPTIONS: dict[str, tuple[Any, str]] = {
    "epochs": (cli.positive, ""), "iterations": (cli.positive, "steps in all"),
    "batch_size": (cli.positive, ""), "lr": (float, "learning rate"), "momentum": (float, ""),
    "clip": (float, "largest norm of the gradients"), "seed": (cli.not_negative, ""),
    "retrain": (cli.positive, "iterations behind the pruning"),
    "retrain_lr": (float, "learning rate of these"), "test_samples": (cli.positive, "for accuracies"),
    "hidden_size": (cli.positive, "units"), "sequences": (cli.positive, "that are looked at"),
    "seeds": (cli.positive, "networks"), "threads": (cli.positive, "of PyTorch on the host"),
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Those of OPTIONS that are given a default, which their help tells."""
    for name, default in defaults.items():
        kind, what = OPTIONS[name]
        told = what if default is None else f"{what} (default {default:g})".lstrip()
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=told)


def picture_path(arguments: argparse.Namespace) -> Path:
    """Where the figure's picture goes, in a folder that is there. Raises BppsaError where it cannot."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    path: Path = arguments.out / f"{arguments.figure}.png"
    check_picture(path)
    return path


def write_result(
    arguments: argparse.Namespace,
    device: Device,
    settings: Iterable[str],
    facts: dict[str, Any],
    *,
    given: dict[str, Any] | None = None,
    indent: int | None = None,
) -> None:
    """Write the file.

    settings  names of the options that the numbers follow from
    given     what else they follow from
    facts     the numbers
    """
    result = {
        "name": arguments.figure,
        "command": arguments.command,
        "settings": cli.taken(arguments, *settings),
        **(given or {}),
        **provenance(device, device.workers),
        **facts,
    }
    cli.write_json(arguments.out / f"{arguments.figure}.json", result, indent=indent)
