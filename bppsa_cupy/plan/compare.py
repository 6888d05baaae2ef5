"""Telling two networks' geometries apart, field by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any


def fingerprint(geometry: Mapping[str, Any]) -> str:
    """SHA-256 of a network's geometry and masks, Sequential.describe()."""
    return hashlib.sha256(json.dumps(geometry, sort_keys=True).encode()).hexdigest()


def differences(planned: Mapping[str, Any], actual: Mapping[str, Any], *, holder: str = "plan") -> list[str]:
    """List the differences between the geometry in a plan (or another `holder`) and a network.

    Each line is about one field.

    E.g. "layer 0: kernel_size [5, 5] in the plan, [3, 3] in the network". Both are Sequential.describe() or
    what JSON made of it. A layer's input shape that differs after another difference follows from that one,
    and is not named.
    """
    both = [dict(_parts(json.loads(json.dumps(geometry)), "")) for geometry in (planned, actual)]
    lines: list[str] = []
    for place in dict.fromkeys(place for parts in both for place in parts):
        before, after = (parts.get(place, {}) for parts in both)
        is_other = before.get("type") != after.get("type")
        for name in ["type"] if is_other else dict.fromkeys((*before, *after)):
            old, new = before.get(name), after.get(name)
            if old != new and not (name == "input_shape" and lines):
                lines.append(f"{place}{name} {_shown(old)} in the {holder}, {_shown(new)} in the network")
    return lines


def _parts(fields: Mapping[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of a network or layer, and of the layers inside of it, each with its place."""
    lists = {
        name: value
        for name, value in fields.items()
        if value and isinstance(value, list) and all(isinstance(item, dict) for item in value)
    }
    yield place and f"layer {place}: ", {name: fields[name] for name in fields if name not in lists}
    for name, layers in lists.items():
        for index, layer in enumerate(layers):
            yield from _parts(layer, f"{place}.{name}.{index}" if place else f"{index}")


def _shown(value: Any) -> Any:
    """A digest, as masks have one, by its first digits."""
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 64 else value
