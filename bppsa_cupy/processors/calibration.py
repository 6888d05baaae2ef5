"""The measured numbers of a GPU's model, read from its calibration file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bppsa_cupy.processors.warps import KINDS
from bppsa_cupy.system.calibration import kept_part, read_rate, read_seconds

#: Fields of a GpuModel that are measured, beside `factors`: seconds, and bytes a second.
SECONDS, RATES = ("launch", "check", "following"), ("cache", "memory")

#: What the factors are called.
CLASSES = tuple(name for kind in KINDS for name in (kind, f"{kind} busy"))


def measured_fields(device: str) -> dict[str, Any] | None:
    """The measured fields of the GpuModel of "cuda", or None; a file that cannot be used is told of, once, by
    a warning."""
    return kept_part(device, "walks", fields_from_json)


def fields_from_json(device: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a GpuModel. Raises KeyError, TypeError, AttributeError or ValueError for other numbers."""
    unknown = set(found["factors"]) - set(CLASSES)
    if unknown:
        raise ValueError(f"no kind of kernel is called {sorted(unknown)[0]!r}")
    return {
        **{name: read_seconds(found[name]) for name in SECONDS},
        **{name: read_rate(found[name]) for name in RATES},
        "factors": {name: _factor(value) for name, value in found["factors"].items()},
    }


def _factor(value: Any) -> float:
    factor = float(value)
    if not 0 < factor < math.inf:
        raise ValueError(f"{value} is no factor")
    return factor
