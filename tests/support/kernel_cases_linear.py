"""Arguments for the kernels of linear scans."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from kernel_cases import Case, case, cases_of

#: batch, steps, elements, samples and steps of a, chunk: none, one, odd, and more than a group of lanes.
SIZES = (
    (2, 0, 3, 1, 1, 4), (0, 3, 2, 1, 3, 2), (1, 1, 1, 1, 1, 1), (2, 5, 3, 2, 5, 2), (3, 19, 17, 3, 19, 8),
    (2, 21, 9, 1, 21, 21), (2, 12, 20, 2, 1, 5), (1, 33, 33, 1, 1, 33), (1, 40, 2, 1, 40, 13),
)  # fmt: skip


@cases_of("linear_scan_forward", "linear_scan_backward", "linear_scan_reduce")
def scans(rng: np.random.Generator) -> Iterator[Case]:
    for number, (batch, steps, elements, a_samples, a_steps, chunk) in enumerate(SIZES):
        chunks = max(1, -(-steps // chunk))
        for paired, descending, behind in itertools.product((0, 1), repeat=3):
            reset_samples = (0, 1, batch)[(number + behind) % 3] if steps else 0
            whole = number % 2 or not steps
            arrays = {
                "lengths": rng.integers(steps if whole else 1, steps + 1, batch),
                "resets": rng.random((reset_samples, steps)) < 0.2,
                "wanted": np.full(behind, descending),
            }
            yield case(
                arrays, batch=batch, steps=steps, width=elements * (1 + paired), a_samples=a_samples,
                a_steps=a_steps, reset_samples=reset_samples, chunk=chunk, chunks=chunks, paired=paired,
                conjugate=paired * behind, descending=descending, behind=behind, guarded=behind,
                each=int(a_steps == steps),
            )  # fmt: skip


@cases_of("linear_scan_carry")
def carried(rng: np.random.Generator) -> Iterator[Case]:
    for chunks, plane in ((1, 2), (3, 0), (7, 6), (2, 300)):
        for paired, descending in itertools.product((0, 1), repeat=2):
            yield case(chunks=chunks, plane=plane, paired=paired, descending=descending)
