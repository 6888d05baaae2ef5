"""The measured cost model of a device, as its calibration has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from bppsa_cupy.plan.cost_model import KINDS, LARGE_BYTES, CostModel, Link, Rate, work_classes
from bppsa_cupy.system.calibration import kept_part, rate_to_json, read_rate, read_seconds


def calibrated(device: str) -> CostModel | None:
    """The kept model of "host" or "cuda", or None; one that cannot be used is told of, once, by a warning."""
    return kept_part(device, "model", model_from_json)


def model_to_json(model: CostModel) -> dict[str, Any]:
    """The model's numbers; null stands for a rate without limit."""
    rates, link = {"": model.rate, **model.rates}, model.link
    return {
        "seconds_per_launch": model.seconds_per_launch,
        "seconds_per_call": model.seconds_per_call,
        "rates": {
            kind: {field: rate_to_json(value) for field, value in asdict(rate).items()}
            for kind, rate in rates.items()
        },
        "link": {"latency": link.latency, "bytes_per_second": rate_to_json(link.bytes_per_second)},
    }


def model_from_json(device: str, found: Mapping[str, Any]) -> CostModel:
    """The model of these numbers. Raises KeyError, TypeError, AttributeError or ValueError for others."""
    rates = {
        kind: Rate(**{field.name: read_rate(numbers[field.name]) for field in fields(Rate)})
        for kind, numbers in found["rates"].items()
    }
    classes = {name for kind in KINDS for name in work_classes(kind, LARGE_BYTES + 1)}
    unknown = set(rates) - {"", *classes}
    if unknown:
        raise ValueError(f"no kind of work is called {sorted(unknown)[0]!r}")
    rate = rates.pop("")
    per_launch, per_call = (read_seconds(found[name]) for name in ("seconds_per_launch", "seconds_per_call"))
    link = Link(read_seconds(found["link"]["latency"]), read_rate(found["link"]["bytes_per_second"]))
    return CostModel(device, rate, per_launch, per_call, rates, link)
