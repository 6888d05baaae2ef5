"""Values that an argument may be given and rarely is: other types, ranges and shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse


class Odd:
    """An object that says it is many things."""

    def __len__(self) -> int:
        return -1

    def __index__(self) -> int:
        raise TypeError("no index after all")

    def __repr__(self) -> str:
        return "Odd()"


def _circle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


CONSTANTS = (
    *(None, True, False, 0, 1, 2, 3, -1, -2, 7, 10**3, 2**31, 2**40, 2**62, 2**63, 2**64, -(2**63), 10**30),
    *(0.0, -0.0, 0.5, 1.0, 1.5, 1e-300, 1e308, -1.0, math.nan, math.inf, -math.inf, 1j),
    *("", "x", "same", "auto", "host", "cuda", "None", "0", "zeros", "mean", "ä" * 50, "\0", "a\nb", b"x"),
    *((), (1,), (2, 2), (1, 2, 3), (0, 0), (-1, 1), (1.5, 2), (None,), ("a", "b"), (2**40, 2**40)),
    *(np.int64(2), np.uint8(200), np.int8(-1), np.float32(0.5), np.float16(2), np.bool_(True)),
    *(np.str_("x"), np.datetime64("2020-01-01"), int, len, Ellipsis, NotImplemented, range(3), slice(1)),
)
#: Each is made anew: a call may keep or change what it is given.
VALUES: tuple[Callable[[], Any], ...] = (
    *(lambda value=value: value for value in CONSTANTS),
    *(list, dict, set, object, Odd, _circle, lambda: [1], lambda: [1, 2], lambda: [[1], [1, 2]]),
    *(lambda: {"a": 1}, lambda: iter([1, 2]), lambda: (k for k in range(2)), lambda: bytearray(3)),
    *(lambda: memoryview(b"abc"), lambda: Path("nowhere"), lambda: scipy.sparse.eye_array(3, format="csr")),
    *(lambda: np.array(3), lambda: np.array(2.5), lambda: np.zeros(0), lambda: np.zeros((0, 3))),
    *(lambda: np.zeros((2, 3)), lambda: np.ones((2, 3), np.float32), lambda: np.ones((1,) * 5, np.float32)),
    *(lambda: np.array([1, 2]), lambda: np.array([2**63], np.uint64), lambda: np.array(["a"])),
    *(lambda: np.array([None, 1], object), lambda: np.array([1 + 2j]), lambda: np.array([True, False])),
    *(lambda: np.ma.masked_array([1.0, 2.0], [True, False]), lambda: np.array(["2020"], "datetime64[Y]")),
    *(lambda: np.zeros(2, [("a", "i4")]), lambda: np.full((2, 3), np.nan, np.float32)),
    *(lambda: np.broadcast_to(np.float32(1), (2, 3)), lambda: np.ones((4, 6), np.float32)[::2, ::2]),
    *(lambda: np.ones((2, 3), ">f4"), lambda: np.ones((2, 3), np.float16), lambda: np.ones(2, np.longdouble)),
    lambda: np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**40,), (0,)),
)


def near(rng: np.random.Generator, value: Any) -> Any:
    """A value like one that is taken: of another type, size, shape, order or layout."""
    if isinstance(value, (bool, np.bool_)):
        return [int(value), str(value), np.bool_(value), float(value)][rng.integers(4)]
    if isinstance(value, (int, float)):
        others = [
            value + 1,
            value - 1,
            -value,
            value * 2,
            value * 1000,
            float(value),
            np.int16(value),
            str(value),
        ]
        return [*others, [value], np.array(value), np.float64(value), value + 0.5][rng.integers(12)]
    if isinstance(value, np.ndarray):
        turned = [
            *(value[:0], value[:1], value[..., None], value[None], value.ravel(), value.T, value[::-1]),
            *(value.astype(kind) for kind in ("f8", "f4", "f2", "i4", "u1", "c8", "O", "?", ">f4")),
            *(np.asfortranarray(value), np.repeat(value, 2, -1) if value.ndim else value, value.tolist()),
            *(np.ma.masked_array(value), -value if value.dtype.kind != "b" else value, value * 0 + np.nan),
        ]
        return turned[rng.integers(len(turned))]
    if isinstance(value, (list, tuple)):
        turned = [
            value[:-1],
            [*value, *value],
            [*value, None],
            tuple(value),
            list(value),
            iter(value),
            value[::-1],
        ]
        return turned[rng.integers(len(turned))]
    if isinstance(value, str):
        return [value.upper(), value[:-1], f"{value} ", value.encode(), [value]][rng.integers(5)]
    if isinstance(value, dict) and value:
        name = list(value)[rng.integers(len(value))]
        return {**value, name: draw(rng)}
    return draw(rng)


def draw(rng: np.random.Generator) -> Any:
    """Any of VALUES."""
    return VALUES[rng.integers(len(VALUES))]()
