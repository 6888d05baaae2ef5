"""The numbers of a figure: one JSON file with what they were made by, beside the picture."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bppsa_cupy.devices import Device
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.machine import provenance
from bppsa_cupy.tools.figures.picture_file import check_picture


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
