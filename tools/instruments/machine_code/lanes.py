"""Values of a register in the 32 lanes of one warp, as far as they are known before a kernel runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LANES = np.arange(32, dtype=np.uint32)
ALL = np.ones(32, dtype=bool)


class Value(NamedTuple):
    """32 bits in each lane.

    lanes  (32,) uint32
    exact  whether these are the values; else the values less one unknown number, the same in every lane,
           which says how the lanes of an address lie to each other
    """

    lanes: np.ndarray
    exact: bool


#: A value that is known, or None for one that is not; a predicate's lanes, or None.
Known = Value | None
Mask = np.ndarray | None


def constant(number: int) -> Value:
    """The same number in every lane."""
    return Value(np.full(32, number & 0xFFFFFFFF, np.uint32), True)


#: One unknown number in every lane.
UNIFORM = Value(np.zeros(32, np.uint32), False)
ZERO = constant(0)


def meet(a: Known, b: Known) -> Known:
    """What is known of a register that holds `a` on one way and `b` on the other."""
    if a is b or a is None or b is None:
        return a if a is b else None
    if a.exact and b.exact and np.array_equal(a.lanes, b.lanes):
        return a
    apart = a.lanes - b.lanes
    if (apart != apart[0]).any():
        return None
    return Value(a.lanes - a.lanes[0], False)


def meet_masks(a: Mask, b: Mask) -> Mask:
    """What is known of a predicate that is `a` on one way and `b` on the other."""
    return a if a is b or (a is not None and b is not None and np.array_equal(a, b)) else None


def add(*values: Known) -> Known:
    """The sum."""
    total, exact = np.zeros(32, np.uint32), True
    for value in values:
        if value is None:
            return None
        total = total + value.lanes
        exact = exact and value.exact
    return Value(total, exact)


def negate(value: Known) -> Known:
    return None if value is None else Value(np.uint32(0) - value.lanes, value.exact)


def multiply(a: Known, b: Known) -> Known:
    """The low 32 bits of the product: known of unknown numbers only times one number."""
    if a is None or b is None:
        return None
    if a.exact and b.exact:
        return Value(a.lanes * b.lanes, True)
    for one, other in ((a, b), (b, a)):
        if one.exact and (one.lanes == one.lanes[0]).all():
            return Value(other.lanes * one.lanes[0], False)
        if not one.exact and not one.lanes.any() and not other.exact and not other.lanes.any():
            return UNIFORM
    return None


def high_product(a: Known, b: Known, signed: bool) -> Known:
    """The high 32 bits of the product of two known numbers."""
    if a is None or b is None or not (a.exact and b.exact):
        return UNIFORM if is_uniform(a) and is_uniform(b) else None
    kind = np.int64 if signed else np.uint64
    first, second = (v.lanes.view(np.int32).astype(kind) if signed else v.lanes.astype(kind) for v in (a, b))
    return Value(((first * second) >> kind(32)).astype(np.uint32), True)


def is_uniform(value: Known) -> bool:
    """Whether every lane holds the same, known or not."""
    return value is not None and bool((value.lanes == value.lanes[0]).all())


def select(mask: Mask, a: Known, b: Known) -> Known:
    """`a` in the lanes of the mask, `b` in the others."""
    if mask is None or mask.all() or not mask.any():
        return meet(a, b) if mask is None else a if mask.all() else b
    if a is None or b is None or not (a.exact and b.exact):
        return None
    return Value(np.where(mask, a.lanes, b.lanes), True)


def carry(*values: Known) -> Mask:
    """The lanes in which the sum of known numbers passes 32 bits."""
    total = np.zeros(32, np.uint64)
    for value in values:
        if value is None or not value.exact:
            return None
        total = total + value.lanes
    return total >> np.uint64(32) != 0


def truth_table(table: int, *inputs: np.ndarray) -> np.ndarray:
    """Bit by bit, the bit of `table` that the inputs' bits number, the first one the highest."""
    result = np.zeros_like(inputs[0])
    for case in range(1 << len(inputs)):
        if table >> case & 1:
            term = ~np.zeros_like(inputs[0])
            for place, given in enumerate(reversed(inputs)):
                term &= given if case >> place & 1 else ~given
            result |= term
    return result
