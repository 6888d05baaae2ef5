"""Arguments for the kernels of scans over chunks of time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from kernel_cases import Case, case, cases_of

from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm

#: steps, hidden, sets of weights, samples, chunk, first chunk: to 20 in registers, beyond in shared memory.
SIZES = (
    (0, 3, 2, 1, 4, 0), (1, 1, 1, 1, 1, 0), (1, 2, 3, 1, 4, 1), (5, 3, 1, 0, 2, 1), (21, 20, 1, 3, 9, 1),
    (19, 7, 2, 3, 19, 0), (5, 33, 2, 1, 2, 1), (10, 64, 1, 1, 10, 0), (2, 100, 1, 1, 1, 1),
)  # fmt: skip


def reductions(rng: np.random.Generator, form: CellForm) -> Iterator[Case]:
    states, gates = form.states, form.gates
    for steps, hidden, sets, batch, chunk, first in SIZES:
        for per_step, reverse, ragged in ((0, 0, 0), (1, 0, 1), (1, 1, 1)):
            least = min(1, steps) if ragged else steps
            arrays = {
                "lengths": rng.integers(least, steps + 1, batch),
                "weight_hh": rng.standard_normal((sets, gates, hidden, hidden)) / hidden**0.5,
                "state": np.tanh(rng.standard_normal((steps, states, sets, hidden, batch))),
                "gates": rng.random((steps, form.kept, sets, hidden, batch)),
            }
            yield case(
                arrays, steps=steps, hidden=hidden, sets=sets, batch=batch, walks=sets * batch, chunk=chunk,
                first=first, per_step=per_step, reverse=reverse,
            )  # fmt: skip


for _form in FORMS.values():
    cases_of(f"{_form.name}_reduce")(lambda rng, form=_form: reductions(rng, form))


#: chunks, states, hidden, sets, samples: sizes in registers and by pieces of maps, of one map and of several.
BOUNDARIES = (
    (1, 1, 3, 1, 2), (2, 1, 1, 1, 1), (14, 1, 20, 1, 3), (11, 2, 10, 2, 1), (6, 2, 20, 1, 2), (5, 1, 8, 0, 0),
    (9, 1, 8, 3, 3), (6, 1, 21, 3, 1), (5, 3, 7, 2, 3), (3, 2, 32, 1, 2), (10, 2, 20, 2, 1), (1, 1, 30, 1, 1),
    (4, 1, 100, 1, 1), (3, 2, 50, 1, 1), (2, 1, 61, 1, 1), (3, 2, 145, 1, 1),
)  # fmt: skip


def boundaries(rng: np.random.Generator, maps: int) -> Iterator[Case]:
    """maps: how many more there are than chunks."""
    for chunks, states, hidden, sets, batch in BOUNDARIES:
        for affine, spread in ((0, 3), (1, 3), (1, 300)):
            exponents = rng.integers(
                -spread, spread // 30 + 1, (chunks + maps, sets * batch, states * hidden)
            )
            yield case(
                {"exponents": exponents}, chunks=chunks, states=states, hidden=hidden, sets=sets, batch=batch,
                affine=affine, damping=0.5,
            )  # fmt: skip


cases_of("chunk_scan")(lambda rng: boundaries(rng, -1))
cases_of("newton_scan")(lambda rng: boundaries(rng, 0))


@cases_of("newton_mismatch", "newton_advance", "newton_errors")
def corrections(rng: np.random.Generator) -> Iterator[Case]:
    sizes = ((2, 1, 1, 1), (1, 1, 3, 2), (7, 2, 5, 3), (300, 1, 4, 2), (3, 1, 2, 0))
    for chunks, states, hidden, batch in sizes:
        rows = states * hidden
        for bad in (0.0, np.nan, np.inf):
            arrays = {name: rng.standard_normal((chunks, rows, batch)) for name in ("mismatch", "step")}
            arrays["step"][0, :1, :1] += bad
            ends = rng.standard_normal((rows, chunks, batch)) * (rng.random((rows, chunks, batch)) < 0.8)
            ends[:1, -1:, -1:] += bad
            yield case(
                {**arrays, "ends": ends}, chunks=chunks, rows=rows, states=states, hidden=hidden,
                batch=batch, tolerance=1e-3, least=1e-30,
            )  # fmt: skip
