"""The paper's GRU on MFCC features against PyTorch's: forward, and back to every parameter (table 6)."""

from __future__ import annotations

from functools import partial

from bppsa_cupy.tools.benchmarks import sequences
from bppsa_cupy.tools.benchmarks.sequences import Case
from bppsa_cupy.tools.reproduction.paper import SETS, TABLE6

AGAINST = sequences.AGAINST

CASES = [
    Case(name if batch == 16 else f"{name}{batch}", *SETS[name], batch, epoch)
    for (name, batch), epoch in TABLE6.items()
]

add_arguments = partial(sequences.add_cases, cases=CASES)
run = partial(sequences.run_cases, cell="gru")
