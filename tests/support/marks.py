"""Parameters of which some take long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(*quick: Any, long: Iterable[Any]) -> list[Any]:
    """The values of a parameter; those marked `long` run in `make check` alone."""
    return [*quick, *(pytest.param(value, marks=pytest.mark.long) for value in long)]


def some_rows(*quick: tuple[Any, ...], long: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The values of several parameters; those marked `long` run in `make check` alone."""
    return [*quick, *(pytest.param(*row, marks=pytest.mark.long) for row in long)]
