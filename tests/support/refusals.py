"""Calls that must be refused: the error's class, and the values that its message names."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def assert_refused(
    call: Callable[[], object], error: type[Exception] | tuple[type[Exception], ...], *named: str
) -> None:
    with pytest.raises(error) as raised:
        call()
    assert all(word in str(raised.value) for word in named), raised.value
