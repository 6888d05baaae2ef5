"""Where two descriptions differ, for errors that name the fields."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


def differences(theirs: Any, ours: Any, *, who: str = "it has", place: str = "") -> list[str]:
    """One phrase a field that differs between two JSON values: "layers[2].padding: it has 1, the network 0".

    theirs  what was saved
    ours    what is at hand, the network's
    who     how the phrase speaks of the saved one
    Empty exactly where the two are equal. Lists and tuples are the same thing.
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            inner = f"{place}.{name}" if place else str(name)
            found += differences(theirs.get(name, _ABSENT), ours.get(name, _ABSENT), who=who, place=inner)
        return found
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        if len(theirs) == len(ours):
            pairs = enumerate(zip(theirs, ours, strict=True))
            whole = all(not isinstance(value, dict) for value in (*theirs, *ours))
            found = [
                phrase
                for k, (one, other) in pairs
                for phrase in differences(one, other, who=who, place=f"{place}[{k}]")
            ]
            return [_phrase(place, theirs, ours, who)] if found and whole else found
        if any(isinstance(value, dict) for value in (*theirs, *ours)):
            return [f"{place}: {who} {len(theirs)} of them, the network {len(ours)}"]
    same = theirs is ours or (theirs is not _ABSENT and ours is not _ABSENT and theirs == ours)
    return [] if same else [_phrase(place, theirs, ours, who)]


def _phrase(place: str, theirs: Any, ours: Any, who: str) -> str:
    shown = ["none" if value is _ABSENT else _show(value) for value in (theirs, ours)]
    return f"{place or 'value'}: {who} {shown[0]}, the network {shown[1]}"


def _show(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 40 else text[:37] + "…"
