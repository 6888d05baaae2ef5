"""Arguments for the kernels of recurrent layers, of scans over chunks of time and of linear scans: any hidden
size, steps that no chunk divides, ragged lengths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from cell_cases import MIXED, PARTLY
from kernel_cases import PAIRS, Case, case, cases_of

from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS

#: Cells whose kernels obey the laws of built-in ones: with some recurrent gates, with all of a form.
OWN = PARTLY["partly"].form, MIXED.form
CELLS = *FORMS.values(), *OWN


#: steps, hidden, samples, chunk: few samples, blocks of them, and what remains.
SIZES = (
    (0, 3, 2, 4), (1, 1, 1, 1), (5, 3, 0, 2), (21, 20, 2, 10), (5, 33, 1, 2), (3, 60, 1, 2), (9, 7, 19, 9),
    (2, 5, 33, 5), (3, 50, 18, 3),
)  # fmt: skip


def recurrent(rng: np.random.Generator, form: CellForm) -> Iterator[Case]:
    settings = (((0, 0, 0), (1, 1, 1)), ((1, 0, 1), (0, 1, 0)))
    for number, (steps, hidden, batch, chunk) in enumerate(SIZES):
        for per_step, reverse, ragged in settings[number % 2]:
            least = min(1, steps) if ragged else steps
            arrays = {
                "lengths": rng.integers(least, steps + 1, batch),
                "weight_hh": rng.standard_normal((form.sums, hidden, hidden)) / hidden**0.5,
                "wanted": np.full(reverse, not per_step),
            }
            yield case(
                arrays, steps=steps, hidden=hidden, batch=batch, chunk=chunk, per_step=per_step,
                reverse=reverse, guarded=reverse,
            )  # fmt: skip


#: hidden, samples: parts of warps and of blocks, terms beyond what lies in shared memory.
STEP_SIZES = ((1, 5), (3, 0), (20, 2), (33, 9), (66, 17), (600, 2))


def single_steps(rng: np.random.Generator, form: CellForm) -> Iterator[Case]:
    """Times at which all, some or none of the samples are padded."""
    for number, (hidden, batch) in enumerate(STEP_SIZES):
        arrays = {
            "lengths": rng.integers(1, 6, batch),
            "weight_hh": rng.standard_normal((form.sums, hidden, hidden)) / hidden**0.5,
            "weight": rng.standard_normal((hidden, form.sums, hidden)) / hidden**0.5,
        }
        yield case(arrays, time=(0, 3, 5)[number % 3], hidden=hidden, batch=batch, per_step=number % 2)


for _form in CELLS:
    cases_of(f"{_form.name}_forward", f"{_form.name}_backward")(lambda rng, form=_form: recurrent(rng, form))
    cases_of(f"{_form.name}_forward_step", f"{_form.name}_backward_step")(
        lambda rng, form=_form: single_steps(rng, form)
    )


@cases_of("sequence_gather", "sequence_scatter")
def layouts(rng: np.random.Generator) -> Iterator[Case]:
    for steps, features, batch, before, after in (
        (0, 2, 3, 0, 0), (1, 1, 1, 0, 0), (5, 3, 2, 0, 4), (7, 20, 17, 2, 1), (300, 1, 2, 0, 0),
        (3, 4, 6, 1, 0), (2, 35, 4, 0, 0), (2, 8, 40, 0, 3),
    ):  # fmt: skip
        for by_time in (0, 1):
            arrays = {"lengths": rng.integers(min(1, steps), steps + 1, batch)}
            yield case(
                arrays, steps=steps, features=features, rows=features + 2, batch=batch, offset=before,
                total=before + features + after, by_time=by_time,
            )  # fmt: skip


@cases_of("sequence_project")
def projections(rng: np.random.Generator) -> Iterator[Case]:
    for steps, inputs, outputs, batch in (
        (0, 2, 3, 2), (1, 1, 1, 1), (3, 38, 60, 16), (4, 5, 7, 33), (2, 0, 3, 2), (35, 9, 5, 3),
        (70, 18, 200, 1), (2, 530, 500, 5),
    ):  # fmt: skip
        for transposed, biased in ((0, 0), (0, 1), (1, 0)):
            yield case(
                steps=steps, rows=inputs + transposed, inputs=inputs, outputs=outputs, batch=batch,
                transposed=transposed, biased=biased,
            )  # fmt: skip


@cases_of("sequence_weight_gradient")
def weight_gradients(rng: np.random.Generator) -> Iterator[Case]:
    for steps, rows, columns, batch, parts in (
        (1, 1, 1, 1, 1), (5, 20, 20, 16, 2), (7, 33, 32, 3, 3), (3, 60, 38, 17, 4), (2, 5, 70, 1, 2),
        (3, 4, 6, 131, 2), (150, 20, 33, 1, 2), (2, 200, 17, 20, 1), (4, 20, 20, 144, 1),
    ):  # fmt: skip
        for shifted, reverse in ((0, 0), (1, 0), (1, 1)):
            yield case(
                steps=steps, rows=rows, columns=columns, batch=batch, parts=parts, shifted=shifted,
                reverse=reverse, first=2, delta_rows=rows + 3, value_rows=columns + shifted,
            )  # fmt: skip


@cases_of(*(kernel.name for form in LINEAR_FORMS.values() for kernel in linear_kernels_of(form).values()))
def linear_cells(rng: np.random.Generator) -> Iterator[Case]:
    for rows, hidden in PAIRS:
        yield case(rows=rows, hidden=hidden)


def fills(rng: np.random.Generator, form: CellForm) -> Iterator[Case]:
    for steps, hidden, batch in ((0, 3, 2), (1, 1, 1), (5, 7, 3), (2, 20, 17)):
        for reverse in (0, 1):
            arrays = {"lengths": rng.integers(min(1, steps), steps + 1, batch)}
            yield case(arrays, steps=steps, hidden=hidden, batch=batch, reverse=reverse)


@cases_of("sequence_gradients")
def all_gradients(rng: np.random.Generator) -> Iterator[Case]:
    """Packs and single numbers, several turns and one, parts without work, pieces across the first step."""
    for steps, delta_rows, hidden, inputs, batch, parts, staged in (
        (1, 1, 1, 1, 1, 1, 1), (0, 3, 2, 1, 2, 2, 2), (9, 20, 20, 1, 16, 3, 7), (5, 20, 5, 3, 3, 4, 2),
        (7, 80, 20, 38, 2, 2, 5), (4, 36, 9, 4, 1, 9, 3), (11, 12, 4, 4, 5, 1, 8),
    ):  # fmt: skip
        for reverse in (0, 1):
            yield case(
                steps=steps, delta_rows=delta_rows, state_rows=2 * hidden, hidden=hidden, inputs=inputs,
                value_rows=inputs + 4 * reverse, batch=batch, parts=parts, staged=staged, reverse=reverse,
            )  # fmt: skip


@cases_of("sequence_gradient_sums")
def sums_of_gradients(rng: np.random.Generator) -> Iterator[Case]:
    for parts, gates, recurrent, hidden, inputs in ((1, 1, 1, 1, 1), (9, 3, 3, 5, 2), (20, 4, 2, 3, 0)):
        for biased in (0, 1):
            yield case(
                {"sources": rng.permutation(gates + 1)[:recurrent]}, parts=parts,
                rows=(gates + 1) * hidden + 2, columns=hidden + inputs + 3, gates=gates, recurrent=recurrent,
                hidden=hidden, inputs=inputs,
                biased=biased,
            )  # fmt: skip


# ---- scans over chunks ----

#: steps, hidden, samples, chunk, first chunk: to 20 in registers, beyond in shared memory.
REDUCED_SIZES = (
    (0, 3, 1, 4, 0), (1, 1, 1, 1, 0), (1, 2, 1, 4, 1), (5, 3, 0, 2, 1), (21, 20, 3, 9, 1), (19, 7, 3, 19, 0),
    (5, 33, 1, 2, 1), (10, 64, 1, 10, 0), (2, 100, 1, 1, 1),
)  # fmt: skip


def reductions(rng: np.random.Generator, form: CellForm) -> Iterator[Case]:
    states = form.states
    for steps, hidden, batch, chunk, first in REDUCED_SIZES:
        for per_step, reverse, ragged in ((0, 0, 0), (1, 0, 1), (1, 1, 1)):
            least = min(1, steps) if ragged else steps
            arrays = {
                "lengths": rng.integers(least, steps + 1, batch),
                "weight_hh": rng.standard_normal((form.sums, hidden, hidden)) / hidden**0.5,
                "state": np.tanh(rng.standard_normal((steps, states, hidden, batch))),
                "gates": rng.random((steps, form.saved, hidden, batch)),
            }
            yield case(
                arrays, steps=steps, hidden=hidden, batch=batch, chunk=chunk, first=first, per_step=per_step,
                reverse=reverse,
            )  # fmt: skip


for _form in CELLS:
    cases_of(f"{_form.name}_reduce")(lambda rng, form=_form: reductions(rng, form))
    cases_of(f"{_form.name}_fill")(lambda rng, form=_form: fills(rng, form))


#: chunks, states, hidden, samples: sizes in registers and by pieces of maps, of one map and of several.
BOUNDARIES = (
    (1, 1, 3, 2), (2, 1, 1, 1), (14, 1, 20, 3), (11, 2, 10, 2), (6, 2, 20, 2), (5, 1, 8, 0), (9, 1, 8, 3),
    (6, 1, 21, 3), (5, 3, 7, 6), (3, 2, 32, 2), (10, 2, 20, 2), (1, 1, 30, 1), (4, 1, 100, 1), (3, 2, 50, 1),
    (2, 1, 61, 1), (3, 2, 145, 1),
)  # fmt: skip


def boundaries(rng: np.random.Generator, maps: int) -> Iterator[Case]:
    """maps: how many more there are than chunks."""
    for chunks, states, hidden, batch in BOUNDARIES:
        for affine, spread in ((0, 3), (1, 3), (1, 300)):
            exponents = rng.integers(-spread, spread // 30 + 1, (chunks + maps, batch, states * hidden))
            yield case(
                {"exponents": exponents}, chunks=chunks, states=states, hidden=hidden, batch=batch,
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


# ---- linear scans ----

#: batch, steps, elements, samples and steps of a, chunk: none, one, odd, and more than a group of lanes.
SCAN_SIZES = (
    (2, 0, 3, 1, 1, 4), (0, 3, 2, 1, 3, 2), (1, 1, 1, 1, 1, 1), (2, 5, 3, 2, 5, 2), (3, 19, 17, 3, 19, 8),
    (2, 21, 9, 1, 21, 21), (2, 12, 20, 2, 1, 5), (1, 33, 33, 1, 1, 33), (1, 40, 2, 1, 40, 13),
)  # fmt: skip


@cases_of("linear_scan_forward", "linear_scan_backward", "linear_scan_reduce")
def scans(rng: np.random.Generator) -> Iterator[Case]:
    for number, (batch, steps, elements, a_samples, a_steps, chunk) in enumerate(SCAN_SIZES):
        chunks = max(1, -(-steps // chunk))
        for paired, descending, behind in itertools.product((0, 1), repeat=3):
            reset_samples = (0, 1, batch)[(number + behind) % 3] if steps else 0
            full = number % 2 or not steps
            arrays = {
                "lengths": rng.integers(steps if full else 1, steps + 1, batch),
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
