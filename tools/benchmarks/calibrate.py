"""Measure the cost model's constants on this machine, and keep them for the planner."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import datetime, timezone

import numba
import numpy as np
from tqdm import tqdm

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.distributed import Group, guard, launched_size
from bppsa_cupy.errors import DistributedError, PlanError
from bppsa_cupy.plan.cost import (
    Calibration,
    calibrated,
    calibration_path,
    find_model,
    load_calibration,
    save_calibration,
    this_machine,
)
from bppsa_cupy.plan.cost_model import CostModel, Link
from bppsa_cupy.tools.benchmarks.calibration_fit import Observation, errors_by_class, fit_model
from bppsa_cupy.tools.benchmarks.calibration_link import TRIPS, measure_link
from bppsa_cupy.tools.benchmarks.calibration_work import networks, observe, overheads
from bppsa_cupy.tools.benchmarks.harness import Row, quartiles
from bppsa_cupy.tools.benchmarks.machine import versions

AGAINST = ("none",)

#: Samples of a batch; values that depend on the sample are multiplied side by side.
BATCHES = (1, 8, 64)

#: What one sample of a piece of work takes, at least.
SAMPLE_SECONDS = 1e-3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--ranks, --show, --dry-run."""
    parser.add_argument(
        "--ranks",
        action="store_true",
        help="measure the link between two ranks alone: mpiexec -n 2 bppsa-bench calibrate --ranks",
    )
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
    if arguments.ranks:
        return _link_rows(device, keep=not (arguments.dry_run or arguments.quick), quick=arguments.quick)
    seconds = 1e-4 if arguments.quick else SAMPLE_SECONDS
    batches = (1, 2) if arguments.quick else BATCHES
    per_launch, per_call = overheads(device, seconds)
    found: list[Observation] = []
    for network in tqdm(
        list(networks(device, arguments.quick)), desc="networks", disable=not sys.stderr.isatty()
    ):
        for batch in batches:
            found += observe(network, batch, seconds)
    # The link is measured by ranks, on its own.
    link = find_model(device.name).link
    model = replace(fit_model(device.name, found, per_launch, per_call), link=link)
    if not (arguments.dry_run or arguments.quick):  # quick numbers are too rough to serve
        _keep(model, device)
    return _rows(model, found)


def _keep(model: CostModel, device: Device) -> None:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    kept = Calibration(model, this_machine(device.name), versions(device), now)
    print(f"kept in {save_calibration(kept)}", file=sys.stderr)


def _link_rows(device: Device, *, keep: bool, quick: bool) -> list[Row]:
    """The link between two ranks, measured, and kept with the device's constants; rank 1 ends here."""
    with guard():
        if launched_size() != 2:
            raise DistributedError(
                f"--ranks measures the link between 2 ranks and {launched_size()} were started: give "
                "mpiexec -n 2 bppsa-bench calibrate --ranks"
            )
        group = Group(device=device)
        if keep and calibrated(device.name) is None:
            raise PlanError(
                f"no constants of {device.name} are kept to put the link to: run bppsa-bench calibrate "
                f"--device {device.name} first, on as many threads as a rank has"
            )
        link = measure_link(group, trips=10 if quick else TRIPS)
        rank = group.rank
        group.close()
        if rank:
            raise SystemExit(0)
    model = replace(find_model(device.name), link=link)
    if keep:
        _keep(model, device)
    return _rows(model, [])[-2:]


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
    return rows + _rate_rows(model, found) + _of_link(case, model.link)


def _of_link(case: str, link: Link) -> list[Row]:
    rows = [Row(f"{case} link", "latency", link.latency, note="half a round trip of a small message")]
    if np.isfinite(link.bytes_per_second):
        rows.append(Row(f"{case} link", "bytes", link.bytes_per_second / 1e9, unit="GB/s"))
    return rows


def _rate_rows(model: CostModel, found: list[Observation]) -> list[Row]:
    rows: list[Row] = []
    errors = errors_by_class(model, found)
    rates = {**model.rates, "others": model.rate}
    for kind, rate in rates.items():
        name = f"{model.name} {kind}"
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
