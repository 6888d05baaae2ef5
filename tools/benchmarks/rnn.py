"""The paper's RNN on bitstreams against PyTorch's: forward, and back to every parameter (tables 4 and 5)."""

from __future__ import annotations

from functools import partial

from bppsa_cupy.tools.benchmarks import sequences
from bppsa_cupy.tools.benchmarks.sequences import Case

AGAINST = sequences.AGAINST

#: Seconds of an epoch by T at B = 16, and by B at T = 1000: forward pass, baseline, BPPSA.
BY_LENGTH = {
    10: (1.57, 4.49, 4.24),
    30: (2.13, 5.5, 4.91),
    100: (3.82, 8.87, 6.64),
    300: (8.79, 18.49, 11.71),
    1000: (25.86, 53.33, 29.29),
    3000: (75.33, 157.11, 79.48),
    10000: (250.28, 510.13, 265.02),
    30000: (748.99, 1557.94, 764.31),
}
BY_BATCH = {
    2: (200.65, 409.33, 227.13),
    4: (100.55, 209.67, 112.23),
    8: (51.29, 102.77, 56.37),
    16: (25.86, 53.33, 29.29),
    32: (13.62, 29.51, 15.0),
    64: (7.51, 14.77, 9.27),
    128: (3.87, 7.96, 5.49),
    256: (2.13, 4.02, 3.72),
}

#: T1000 is B16.
CASES = [
    *(Case(f"T{T}", T, 1, 16, (fp, both, fp, scan)) for T, (fp, both, scan) in BY_LENGTH.items()),
    *(Case(f"B{B}", 1000, 1, B, (fp, both, fp, scan)) for B, (fp, both, scan) in BY_BATCH.items() if B != 16),
]

add_arguments = partial(sequences.add_cases, cases=CASES)
run = partial(sequences.run_cases, cell="rnn")
