"""Measured cost models, kept in the user's cache: one file a device, and on the host one a thread count.

A file is JSON, sealed by the SHA-256 of all its other fields. One that is damaged, or of another machine,
is left alone: the built-in estimates serve then.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba

from bppsa_cupy.errors import PlanError, reason_of
from bppsa_cupy.plan.cost_model import KINDS, LARGE_BYTES, CostModel, Link, Rate, work_classes
from bppsa_cupy.system.files import write_text
from bppsa_cupy.system.machine import cpu_model, gpu_models

FORMAT, FORMAT_VERSION = "bppsa-cost-model", 2


@dataclass(frozen=True)
class Calibration:
    """A measured cost model.

    machine   processor and threads, or processor and GPUs: what it was measured on
    versions  of the packages it was measured with
    date      as ISO 8601 writes it
    """

    model: CostModel
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]
    date: str


def calibration_path(device: str) -> Path:
    """Where the cost model of "host" or "cuda" is kept: below XDG_CACHE_HOME (default ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = f"host-{numba.get_num_threads()}-threads" if device == "host" else device
    return Path(base) / "bppsa-cupy" / "cost-models" / f"{name}.json"


def this_machine(device: str) -> dict[str, Any]:
    """What a calibration must have been measured on to be used here."""
    if device == "host":
        return {"cpu": cpu_model(), "threads": int(numba.get_num_threads())}
    return {"cpu": cpu_model(), "gpus": gpu_models()}


def save_calibration(calibration: Calibration) -> Path:
    """Keep a measured model, whole or not at all; the path. Raises PlanError where that fails."""
    path = calibration_path(calibration.model.name)
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "device": calibration.model.name,
        "machine": dict(calibration.machine),
        "versions": dict(calibration.versions),
        "date": calibration.date,
        "model": _to_json(calibration.model),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlanError(
            f"{path.parent} cannot be made ({error.strerror}): set XDG_CACHE_HOME to a folder that can be "
            "written"
        ) from error
    text = json.dumps({**content, "sha256": _digest(content)}, indent=1)
    write_text(path, text + "\n", error=PlanError)
    return path


def load_calibration(device: str) -> Calibration:
    """The kept model of "host" or "cuda".

    Raises PlanError, naming what is wrong with it, where it is damaged or another machine's, and
    FileNotFoundError where there is none.
    """
    path = calibration_path(device)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        seal = content.pop("sha256")
        if seal != _digest(content):
            raise PlanError("its SHA-256 is not that of its content")
        if (content["format"], content["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise PlanError(
                f"its format is {content['format']} {content['format_version']}, not {FORMAT} "
                f"{FORMAT_VERSION}"
            )
        here = this_machine(device)
        if (content["device"], content["machine"]) != (device, here):
            raise PlanError(
                f"it was measured for {content['device']} on {content['machine']}, this is {device} on {here}"
            )
        model = _from_json(device, content["model"])
        return Calibration(model, content["machine"], content["versions"], str(content["date"]))
    except FileNotFoundError:
        raise
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(
            f"{path}: it is no {FORMAT} file ({type(error).__name__}: {reason_of(error)})"
        ) from error


def calibrated(device: str) -> CostModel | None:
    """The kept model of a device, or None; one that cannot be used is told of, once, by a warning."""
    path = calibration_path(device)
    try:
        facts = path.stat()
    except OSError:
        return None
    return _read_once(device, str(path), facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=16)
def _read_once(device: str, path: str, changed: int, size: int) -> CostModel | None:
    """The model in the file that was last changed at a time; asked for once for each such file."""
    try:
        return load_calibration(device).model
    except FileNotFoundError:
        return None
    except PlanError as error:
        warnings.warn(
            f"{error}; the built-in estimates are used: run bppsa-bench calibrate --device {device}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _to_json(model: CostModel) -> dict[str, Any]:
    """The model's numbers; null stands for a rate without limit."""
    rates, link = {"": model.rate, **model.rates}, model.link
    return {
        "seconds_per_launch": model.seconds_per_launch,
        "seconds_per_call": model.seconds_per_call,
        "rates": {
            kind: {field: None if math.isinf(value) else value for field, value in asdict(rate).items()}
            for kind, rate in rates.items()
        },
        "link": {
            "latency": link.latency,
            "bytes_per_second": None if math.isinf(link.bytes_per_second) else link.bytes_per_second,
        },
    }


def _from_json(device: str, found: Mapping[str, Any]) -> CostModel:
    rates = {
        kind: Rate(**{field.name: _rate(numbers[field.name]) for field in fields(Rate)})
        for kind, numbers in found["rates"].items()
    }
    classes = {name for kind in KINDS for name in work_classes(kind, LARGE_BYTES + 1)}
    unknown = set(rates) - {"", *classes}
    if unknown:
        raise ValueError(f"no kind of work is called {sorted(unknown)[0]!r}")
    rate = rates.pop("")
    per_launch, per_call = (_seconds(found[name]) for name in ("seconds_per_launch", "seconds_per_call"))
    link = Link(_seconds(found["link"]["latency"]), _rate(found["link"]["bytes_per_second"]))
    return CostModel(device, rate, per_launch, per_call, rates, link)


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{value} is no number of seconds")
    return seconds


def _rate(value: Any) -> float:
    rate = math.inf if value is None else float(value)
    if not rate > 0:
        raise ValueError(f"{value} is no rate")
    return rate
