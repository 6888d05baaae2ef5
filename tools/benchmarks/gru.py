"""The paper's GRU on MFCC features against PyTorch's: forward, and back to every parameter (table 6)."""

from __future__ import annotations

from functools import partial

from bppsa_cupy.tools.benchmarks import sequences
from bppsa_cupy.tools.benchmarks.sequences import Case

AGAINST = sequences.AGAINST

#: Steps and features of the paper's sets.
SETS = {"S": (259, 38), "M": (517, 24), "L": (1034, 12)}

#: Seconds of an epoch: forward pass, baseline, forward pass with the Jacobians, BPPSA.
PAPER = {
    ("S", 16): (1.66, 3.71, 2.1, 2.94),
    ("S", 32): (0.91, 1.9, 1.09, 1.48),
    ("S", 64): (0.52, 1.0, 0.62, 0.82),
    ("M", 16): (3.21, 6.19, 3.52, 4.2),
    ("M", 32): (1.73, 3.3, 1.83, 2.22),
    ("M", 64): (0.86, 1.82, 1.18, 1.2),
    ("L", 16): (5.78, 11.43, 6.06, 6.91),
    ("L", 32): (3.04, 6.09, 3.23, 3.57),
    ("L", 64): (1.64, 3.19, 2.13, 2.33),
}

CASES = [
    Case(name if batch == 16 else f"{name}{batch}", *SETS[name], batch, paper)
    for (name, batch), paper in PAPER.items()
]

add_arguments = partial(sequences.add_cases, cases=CASES)
run = partial(sequences.run_cases, cell="gru")
