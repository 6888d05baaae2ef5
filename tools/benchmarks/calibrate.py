"""Measure the cost model's constants on this machine, and keep them for the planner."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timezone

import numba
import numpy as np
from tqdm import tqdm

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.cost import (
    Calibration,
    calibrated,
    calibration_path,
    find_model,
    load_calibration,
    save_calibration,
    this_machine,
)
from bppsa_cupy.plan.cost_model import CostModel
from bppsa_cupy.tools.benchmarks.calibration_fit import Observation, errors_by_class, fit_model
from bppsa_cupy.tools.benchmarks.calibration_work import networks, observe, overheads
from bppsa_cupy.tools.benchmarks.harness import Row, quartiles
from bppsa_cupy.tools.benchmarks.machine import versions

AGAINST = ("none",)

#: Samples of a batch; values that depend on the sample are multiplied side by side.
BATCHES = (1, 8, 64)

#: What one sample of a piece of work takes, at least.
SAMPLE_SECONDS = 1e-3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--show, --dry-run."""
    parser.add_argument("--show", action="store_true", help="print the constants in use; measure nothing")
    parser.add_argument("--dry-run", action="store_true", help="measure and print, and keep nothing")


def run(arguments: argparse.Namespace) -> list[Row]:
    """The constants of the device's model, with how well they explain what was measured."""
    device = get_device(arguments.device)
    if device.name == "host":
        numba.set_num_threads(min(arguments.threads, numba.config.NUMBA_NUM_THREADS))
    if arguments.show:
        print(_source(device.name), file=sys.stderr)
        return _rows(find_model(device.name), [])
    seconds = 1e-4 if arguments.quick else SAMPLE_SECONDS
    batches = (1, 2) if arguments.quick else BATCHES
    per_launch, per_call = overheads(device, seconds)
    found: list[Observation] = []
    for network in tqdm(
        list(networks(device, arguments.quick)), desc="networks", disable=not sys.stderr.isatty()
    ):
        for batch in batches:
            found += observe(network, batch, seconds)
    model = fit_model(device.name, found, per_launch, per_call)
    if not (arguments.dry_run or arguments.quick):  # quick numbers are too rough to serve
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        kept = Calibration(model, this_machine(device.name), versions(device), now)
        print(f"kept in {save_calibration(kept)}", file=sys.stderr)
    return _rows(model, found)


def _source(device: str) -> str:
    """Where the constants in use come from."""
    if calibrated(device) is None:
        reason = "none is kept"
        try:
            load_calibration(device)
        except FileNotFoundError:
            pass
        except PlanError as error:
            reason = str(error)
        return f"{device}: the built-in estimates ({reason})"
    kept = load_calibration(device)
    return f"{device}: measured {kept.date} on {dict(kept.machine)}, {calibration_path(device)}"


def _rows(model: CostModel, found: list[Observation]) -> list[Row]:
    case = model.name
    rows = [
        Row(case, "launch", model.seconds_per_launch, note="seconds of every launch of a scan"),
        Row(case, "call", model.seconds_per_call, note="seconds of every VJP, fill and transposition"),
    ]
    errors = errors_by_class(model, found)
    rates = {**model.rates, "others": model.rate}
    for kind, rate in rates.items():
        name = f"{case} {kind}"
        for quantity, value, unit in (
            ("multiply-adds", rate.multiply_adds_per_second, "G/s"),
            ("bytes", rate.bytes_per_second, "GB/s"),
            ("loops", rate.loops_per_second, "G/s"),
        ):
            if np.isfinite(value):
                rows.append(Row(name, quantity, value / 1e9, unit=unit))
        ratios = errors.get(kind)
        if ratios:
            median, spread = float(np.median(ratios)), {"ours": quartiles(ratios)}
            note = f"median and quartiles over {len(ratios)} pieces of work"
            rows.append(Row(name, "predicted / measured", median, unit="times", spread=spread, note=note))
    return rows
