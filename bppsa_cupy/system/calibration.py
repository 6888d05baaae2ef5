"""What was measured of a device, kept in the user's cache: a file a device, on the host one a thread count.

A file is JSON, sealed by the SHA-256 of all its other fields. One that is damaged, or of another machine,
is left alone: the built-in estimates serve then.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numba

from bppsa_cupy.errors import PlanError, reason_of
from bppsa_cupy.system.files import write_text
from bppsa_cupy.system.machine import cpu_model, gpu_models

FORMAT, FORMAT_VERSION = "bppsa-cost-model", 3

#: The version before, which has no walks.
BEFORE = 2

T = TypeVar("T")


@dataclass(frozen=True)
class Calibration:
    """Measured models of a device, as JSON has them; None for one that was not measured.

    machine   processor and threads, or processor and GPUs: what they were measured on
    versions  of the packages they were measured with
    date      as ISO 8601 writes it
    model     the planner's cost model
    walks     the model of passes over time
    """

    device: str
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]
    date: str
    model: Mapping[str, Any] | None = None
    walks: Mapping[str, Any] | None = None


def calibration_path(device: str) -> Path:
    """Where what was measured of "host" or "cuda" is kept: below XDG_CACHE_HOME (default ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = f"host-{numba.get_num_threads()}-threads" if device == "host" else device
    return Path(base) / "bppsa-cupy" / "cost-models" / f"{name}.json"


def this_machine(device: str) -> dict[str, Any]:
    """What a calibration must have been measured on to be used here."""
    if device == "host":
        return {"cpu": cpu_model(), "threads": int(numba.get_num_threads())}
    return {"cpu": cpu_model(), "gpus": gpu_models()}


def save_calibration(calibration: Calibration) -> Path:
    """Keep what was measured, whole or not at all; the path. Raises PlanError where that fails."""
    path = calibration_path(calibration.device)
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(calibration)}
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
    """What is kept of "host" or "cuda".

    Raises PlanError, naming what is wrong with it, where it is damaged or another machine's, and
    FileNotFoundError where there is none. What its models hold is not looked at: `load_part`.
    """
    path = calibration_path(device)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        seal = content.pop("sha256")
        if seal != _digest(content):
            raise PlanError("its SHA-256 is not that of its content")
        version = content["format_version"]
        if content["format"] != FORMAT or version not in (BEFORE, FORMAT_VERSION):
            raise PlanError(
                f"its format is {content['format']} {version}, not {FORMAT} {BEFORE} or {FORMAT_VERSION}"
            )
        here = this_machine(device)
        if (content["device"], content["machine"]) != (device, here):
            raise PlanError(
                f"it was measured for {content['device']} on {content['machine']}, this is {device} on {here}"
            )
        walks = None if version == BEFORE else content["walks"]
        known = content["machine"], content["versions"], str(content["date"])
        return Calibration(device, *known, content["model"], walks)
    except FileNotFoundError:
        raise
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _foreign(path, error) from error


def load_part(device: str, part: str, read: Callable[[str, Any], T]) -> T | None:
    """One of the kept models, "model" or "walks", by `read` from the device's name and the JSON; None where
    it was not measured. Raises as `load_calibration`, and PlanError where `read` raises."""
    found = getattr(load_calibration(device), part)
    if found is None:
        return None
    try:
        return read(device, found)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise _foreign(calibration_path(device), error) from error


def kept_part(device: str, part: str, read: Callable[[str, Any], T]) -> T | None:
    """The same, and None where there is no file; one that cannot be used is told of, once, by a warning."""
    version = calibration_version(device)
    return None if version is None else _read_once(device, part, read, *version)


def calibration_version(device: str) -> tuple[str, int, int] | None:
    """What tells the file of a device's calibration from any before it: path, time and size; None without."""
    path = calibration_path(device)
    try:
        facts = path.stat()
    except OSError:
        return None
    return str(path), facts.st_mtime_ns, facts.st_size


@lru_cache(maxsize=16)
def _read_once(
    device: str, part: str, read: Callable[[str, Any], T], path: str, changed: int, size: int
) -> T | None:
    """A part of the file that was last changed at a time; asked for once for each such file."""
    try:
        return load_part(device, part, read)
    except FileNotFoundError:
        return None
    except PlanError as error:
        warnings.warn(
            f"{error}; the built-in estimates are used: run bppsa-bench calibrate --device {device}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _foreign(path: Path, error: Exception) -> PlanError:
    return PlanError(f"{path}: it is no {FORMAT} file ({type(error).__name__}: {reason_of(error)})")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_seconds(value: Any) -> float:
    """A finite number of seconds, at least 0. Raises ValueError."""
    seconds = float(value)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{value} is no number of seconds")
    return seconds


def read_rate(value: Any) -> float:
    """A rate above 0; infinity for null. Raises ValueError."""
    rate = math.inf if value is None else float(value)
    if not rate > 0:
        raise ValueError(f"{value} is no rate")
    return rate


def rate_to_json(rate: float) -> float | None:
    """A rate as JSON has it, which knows no infinity: null stands for it."""
    return None if math.isinf(rate) else rate
