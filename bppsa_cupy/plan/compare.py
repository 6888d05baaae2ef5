"""Telling two networks' geometries apart, field by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any


def fingerprint(geometry: Mapping[str, Any]) -> str:
    """SHA-256 of a network's geometry and masks, Sequential.describe()."""
    return hashlib.sha256(json.dumps(geometry, sort_keys=True).encode()).hexdigest()


def differences(planned: Mapping[str, Any], actual: Mapping[str, Any], *, holder: str = "plan") -> list[str]:
    """What differs between the geometry in a plan, or another `holder`, and a network's, one line a field.

    E.g. "layer 0 Conv2d: kernel_size (5, 5) in the plan, (3, 3) in the network". Both are
    Sequential.describe() or what JSON made of it; lists and tuples are equal. A layer's input shape
    that differs after another difference follows from that one, and is not named.
    """
    lines: list[str] = []
    for name in dict.fromkeys((*planned, *actual)):
        if name != "layers":
            lines += _field("", name, planned, actual, holder)
    both = planned.get("layers", ()), actual.get("layers", ())
    if all(map(_are_layers, both)):
        _compare_layers(*both, holder, "", lines)
    else:  # what a file says may be anything
        lines += _field("", "layers", planned, actual, holder)
    return lines


def _compare_layers(planned: Any, actual: Any, holder: str, place: str, lines: list[str]) -> None:
    """Add what differs between two lists of layers, those inside of layers included."""
    for index, (before, after) in enumerate(zip_longest(planned, actual)):
        here = f"layer {place}{index}"
        if before is None or after is None:
            present, absent = ("network", holder) if before is None else (holder, "network")
            name = (after if before is None else before).get("type", "")
            lines.append(f"{here} {name} is in the {present}, not in the {absent}")
        elif before.get("type") != after.get("type"):
            lines += _field(f"{here}: ", "type", before, after, holder)
        else:
            for name in dict.fromkeys((*before, *after)):
                if name == "input_shape" and lines:
                    continue
                inner = before.get(name), after.get(name)
                if all(map(_are_layers, inner)):
                    _compare_layers(*inner, holder, f"{place}{index}.{name}.", lines)
                else:
                    lines += _field(f"{here} {before.get('type')}: ", name, before, after, holder)


def _are_layers(value: Any) -> bool:
    """Whether a field holds the layers inside of a layer, if any."""
    return isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value)


def _field(
    where: str, name: str, planned: Mapping[str, Any], actual: Mapping[str, Any], holder: str
) -> list[str]:
    before, after = _plain(planned.get(name)), _plain(actual.get(name))
    if before == after:
        return []
    return [f"{where}{name} {_shown(before)} in the {holder}, {_shown(after)} in the network"]


def _shown(value: Any) -> Any:
    """A digest, as masks have one, by its first digits."""
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 64 else value


def _plain(value: Any) -> Any:
    return tuple(_plain(item) for item in value) if isinstance(value, list | tuple) else value
