"""Which launches of a sequence wait for which."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bppsa_cupy.devices.order import Bound, predecessors
from bppsa_cupy.raw_kernels import KERNELS

#: output "in", values "out", two scalars; parameters "in", flag "inout", a scalar.
FILL, CHECK = KERNELS["relu_fill"], KERNELS["finite_check"]
PLACES = 12


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def bound(kernel, *arrays):
    scalars = [1 for parameter in kernel.parameters if not parameter.is_array]
    return Bound(kernel, (*arrays, *scalars), lambda: None, Counter())


def launches_of(sequence, memory):
    """Launches that read and write these ranges of a memory."""
    kernels = [None if launch is None else CHECK if launch[0] else FILL for launch in sequence]
    return [
        (lambda: None) if launch is None else bound(kernel, memory[launch[1]], memory[launch[2]])
        for launch, kernel in zip(sequence, kernels, strict=True)
    ]


ranges = st.tuples(st.integers(0, PLACES - 1), st.integers(1, 5)).map(
    lambda r: slice(r[0], min(r[0] + r[1], PLACES))
)
#: What a launch reads and what it writes, or reads and writes; None of one that was not bound.
launches = st.lists(st.none() | st.tuples(st.booleans(), ranges, ranges), max_size=12)


def run_launch(memory, launch, number):
    """What a launch leaves depends on all that it reads, and on which it is."""
    if launch is None:
        memory[...] = memory * 3 + number
        return
    both, read, written = launch
    value = hash((number, *memory[read].tolist(), *(memory[written].tolist() if both else ())))
    memory[written] = np.arange(written.stop - written.start) + value


@given(launches, st.randoms(use_true_random=False))
def test_any_order_that_heeds_them_ends_as_one_after_another(sequence, random):
    before = predecessors(launches_of(sequence, np.zeros(PLACES, np.int64)), address)
    expected, actual = np.arange(PLACES), np.arange(PLACES)
    for number, launch in enumerate(sequence):
        run_launch(expected, launch, number)
    waiting = dict(enumerate(map(set, before)))
    while waiting:
        number = random.choice([k for k, waits in waiting.items() if not waits & waiting.keys()])
        del waiting[number]
        run_launch(actual, sequence[number], number)
    np.testing.assert_array_equal(actual, expected)
