"""The paper's RNN on bitstreams against PyTorch's: forward, and back to every parameter (tables 4 and 5)."""

from __future__ import annotations

from functools import partial

from bppsa_cupy.tools.benchmarks import sequences
from bppsa_cupy.tools.benchmarks.sequences import Case
from bppsa_cupy.tools.reproduction.paper import TABLE4, TABLE5

AGAINST = sequences.AGAINST

#: T1000 is B16.
CASES = [
    *(Case(f"T{T}", T, 1, 16, epoch) for T, epoch in TABLE4.items()),
    *(Case(f"B{B}", 1000, 1, B, epoch) for B, epoch in TABLE5.items() if B != 16),
]

add_arguments = partial(sequences.add_cases, cases=CASES)
run = partial(sequences.run_cases, cell="rnn")
