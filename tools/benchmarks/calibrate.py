"""Measure the cost models' constants on this machine, and keep them for plans and for passes over time."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import numba
import numpy as np
from tqdm import tqdm

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.distributed import Group, guard, launched_size
from bppsa_cupy.errors import DistributedError, PlanError
from bppsa_cupy.plan.cost import calibrated, find_model, model_to_json
from bppsa_cupy.plan.cost_model import CostModel, Link
from bppsa_cupy.processors.calibration import measured_fields
from bppsa_cupy.processors.models import GpuModel, built_in, model_of
from bppsa_cupy.system.calibration import (
    Calibration,
    calibration_path,
    load_calibration,
    save_calibration,
    this_machine,
)
from bppsa_cupy.tools.benchmarks.calibration_fit import Observation, errors_by_class, fit_model
from bppsa_cupy.tools.benchmarks.calibration_link import TRIPS, measure_link
from bppsa_cupy.tools.benchmarks.calibration_walks import cases, time_cases, time_overheads
from bppsa_cupy.tools.benchmarks.calibration_walks_fit import Timed, fit_walks, walk_errors
from bppsa_cupy.tools.benchmarks.calibration_work import networks, observe, overheads
from bppsa_cupy.tools.benchmarks.harness import Row, quartiles
from bppsa_cupy.tools.machine import versions

AGAINST = ("none",)

#: Samples of a batch; values that depend on the sample are multiplied side by side.
BATCHES = (1, 8, 64)

#: What one sample of a piece of work takes, at least.
SAMPLE_SECONDS = 1e-3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--ranks, --walks, --show, --dry-run."""
    part = parser.add_mutually_exclusive_group()
    part.add_argument(
        "--ranks",
        action="store_true",
        help="measure the link between two ranks alone: mpiexec -n 2 bppsa-bench calibrate --ranks",
    )
    part.add_argument("--walks", action="store_true", help="measure a GPU's passes over time alone")
    parser.add_argument("--show", action="store_true", help="print the constants in use; measure nothing")
    parser.add_argument("--dry-run", action="store_true", help="measure and print, and keep nothing")


def run(arguments: argparse.Namespace) -> list[Row]:
    """The constants of the device's models, with how well they explain what was measured."""
    device = get_device(arguments.device)
    if device.name == "host":
        numba.set_num_threads(min(arguments.threads, numba.config.NUMBA_NUM_THREADS))
    if arguments.show:
        return _shown(device)
    keep = not (arguments.dry_run or arguments.quick)  # quick numbers are too rough to serve
    if arguments.ranks:
        return _link_rows(device, keep=keep, quick=arguments.quick)
    rows: list[Row] = []
    measured: dict[str, Any] = {}
    if not arguments.walks:
        model, found = _measure_work(device, arguments.quick)
        rows, measured["model"] = _rows(model, found), model_to_json(model)
    walks = built_in(device)
    if isinstance(walks, GpuModel):
        walks, timed = _measure_walks(device, walks, arguments.quick, arguments.threads)
        rows, measured["walks"] = rows + _walk_rows(walks, timed), walks.measured
    elif arguments.walks:
        raise PlanError(
            f"--walks measures a GPU's passes over time and the device is {device.name}: give --device cuda"
        )
    if keep:
        _keep(device, **measured)
    return rows


def _shown(device: Device) -> list[Row]:
    """The constants in use."""
    print(_source(device.name), file=sys.stderr)
    rows, walks = _rows(find_model(device.name), []), model_of(device)
    return rows + _walk_rows(walks, []) if isinstance(walks, GpuModel) else rows


def _measure_work(device: Device, quick: bool) -> tuple[CostModel, list[Observation]]:
    """The planner's model, and the work that it is fitted to."""
    seconds, batches = (1e-4, (1, 2)) if quick else (SAMPLE_SECONDS, BATCHES)
    per_launch, per_call = overheads(device, seconds)
    found: list[Observation] = []
    for network in tqdm(list(networks(device, quick)), desc="networks", disable=not sys.stderr.isatty()):
        for batch in batches:
            found += observe(network, batch, seconds)
    # The link is measured by ranks, on its own.
    link = find_model(device.name).link
    return replace(fit_model(device.name, found, per_launch, per_call), link=link), found


def _measure_walks(
    device: Device, model: GpuModel, quick: bool, processes: int
) -> tuple[GpuModel, list[Timed]]:
    """The model of passes over time, and the launches that it is fitted to."""
    model = replace(model, **time_overheads(device))
    timed = []
    for one in time_cases(device, cases(quick), processes):
        timed.append(one)
        print(one, file=sys.stderr)  # stays where the rest is cut off
    return fit_walks(model, timed), timed


def _keep(device: Device, **measured: Any) -> None:
    """Keep what was measured, beside what was kept before of the other models."""
    try:
        before = load_calibration(device.name)
        others = {"model": before.model, "walks": before.walks}
    except (FileNotFoundError, PlanError):
        others = {}
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    machine = this_machine(device.name)
    kept = Calibration(device.name, machine, versions(device), now, **{**others, **measured})
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
        _keep(device, model=model_to_json(model))
    return _rows(model, [])[-2:]


def _source(device: str) -> str:
    """Where the constants in use come from."""
    used = {"products and layers": calibrated(device), "passes over time": measured_fields(device)}
    measured = [name for name, one in used.items() if one is not None]
    reason = "no kept one can be used"
    try:
        kept = load_calibration(device)
        if measured:
            place = f"on {dict(kept.machine)}, {calibration_path(device)}"
            return f"{device}: {' and '.join(measured)} measured {kept.date} {place}"
    except FileNotFoundError:
        reason = "none is kept"
    except PlanError as error:
        reason = str(error)
    return f"{device}: the built-in estimates ({reason})"


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
            rows.append(_error_row(name, ratios, "pieces of work"))
    return rows


def _walk_rows(model: GpuModel, timed: list[Timed]) -> list[Row]:
    """The constants of passes over time, and by class of launches how well they explain them."""
    case = f"{model.name} walks"
    rows = [
        Row(case, "launch", model.launch, note="seconds of a launch with next to nothing to do"),
        Row(case, "following", model.following, note="seconds of such a kernel in a graph"),
        Row(case, "check", model.check, note="seconds until the host has a number of the device's"),
        Row(case, "cache", model.cache / 1e9, unit="GB/s"),
        Row(case, "memory", model.memory / 1e9, unit="GB/s"),
    ]
    errors = walk_errors(model, timed)
    for name in sorted({*model.factors, *errors}):
        note = "seconds, by those counted of the machine code"
        rows.append(Row(f"{case} {name}", "factor", model.factor(name), unit="times", note=note))
        if name in errors:
            rows.append(_error_row(f"{case} {name}", errors[name], "launches"))
    return rows


def _error_row(case: str, ratios: list[float], of_what: str) -> Row:
    note = f"median and quartiles over {len(ratios)} {of_what}"
    median, spread = float(np.median(ratios)), {"ours": quartiles(ratios)}
    return Row(case, "predicted / measured", median, unit="times", spread=spread, note=note)
