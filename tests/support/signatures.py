"""Signatures of functions, those of Cython too."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """A function's parameters by name, of Cython's by its text's first line; None of one that tells none."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return written((function.__doc__ or "").partition("\n")[0])


def written(line: str) -> dict[str, inspect.Parameter] | None:
    """The parameters of a signature as Cython writes it: "RawModule(str code=None, *, str path=None)"."""
    words = re.fullmatch(r"[\w.]+\((.*)\)( -> .*)?", line)
    if words is None:
        return None
    names = [
        (word.partition("=")[0].split()[-1], "=" in word) for word in words[1].split(",") if word.strip()
    ]
    scope: dict[str, Any] = {}
    exec(f"def call({', '.join(name + '=0' * default for name, default in names)}): ...", scope)
    return dict(inspect.signature(scope["call"]).parameters)
