"""The frames' CUDA texts, emulated, against recurrent cells by their definitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import sympy
from frames_reference import STEPS, Reference
from kernel_comparison import launch_text
from tolerances import assert_close
from unit_cells import PARTLY, UNITS

import bppsa_cupy as bp
from bppsa_cupy.devices import Device
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.kernels import VERBS, make_kernels
from bppsa_cupy.raw_kernels.kernel import Kernel


def _no_twin(*arguments: object) -> None:
    """What a twin computes is not asked here."""


def mixed_step(x, u, s, p):
    """All that a form may have: a separate gate, unit parameters, states that meet without W_hh."""
    f = bp.cells.sigmoid(x.f + u.f)
    c = f * s.c + (1 - f) * sympy.tanh(x.v + p.v * u.v) + p.h * s.h
    return {"h": f * c, "c": c}


MIXED = bp.Cell("mixed", gates=["f", "v"], states=["h", "c"], parameters=["v", "h"], step=mixed_step).form


#: Cells without recurrent gates, and with some.
DERIVED = {name: cell.form for name, (cell, _) in (UNITS | PARTLY).items()}


@pytest.fixture(autouse=True, scope="module")
def five_are_many() -> Iterator[None]:
    """Where memory holds the weights, blocks walk several samples together from five walks on, and where
    registers do, neighbours share a block from six on."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MANY", "SPREAD"):
            patch.setattr(f"bppsa_cupy.raw_kernels.frames.kernels.{name}", 5)
        yield


@cache
def kernels(name: str) -> tuple[CellForm, dict[str, Kernel]]:
    form = MIXED if name == "mixed" else DERIVED[name] if name in DERIVED else FORMS[name]
    return form, make_kernels(form, dict.fromkeys(VERBS, _no_twin))


@dataclass(frozen=True)
class Sizes:
    """steps, units of a set of weights, sets, samples, steps of a chunk, and where reductions start."""

    steps: int
    hidden: int
    sets: int
    batch: int
    chunk: int
    first: int = 0


# Every width; weights in shared and in device memory, by one sample and by several; more walks than a block
# makes; chunks that do not divide; nothing at all.
SIZES = (
    Sizes(0, 3, 2, 1, 4), Sizes(1, 1, 1, 1, 1), Sizes(5, 3, 1, 0, 2), Sizes(19, 3, 3, 6, 7, 1),
    Sizes(37, 20, 3, 2, 19, 1), Sizes(6, 33, 2, 1, 4), Sizes(3, 65, 1, 2, 2, 1), Sizes(5, 24, 1, 3, 5),
    Sizes(3, 66, 2, 5, 2), Sizes(2, 130, 1, 5, 1, 1),
)  # fmt: skip
#: Of cells without recurrent gates: units are sets.
UNIT_SIZES = (
    Sizes(0, 1, 2, 1, 4), Sizes(5, 1, 3, 0, 2), Sizes(1, 1, 1, 1, 1), Sizes(19, 1, 3, 6, 7, 1),
    Sizes(9, 1, 2, 2, 1), Sizes(21, 1, 1, 3, 21),
)  # fmt: skip
#: per_step, reverse, ragged
FLAGS = ((0, 0, 0), (1, 0, 1), (1, 1, 1))


def by_walks(values: np.ndarray) -> np.ndarray:
    """(…, sets, hidden, batch) as (…, hidden, walks): a walk a set of weights and sample."""
    *before, sets, hidden, batch = values.shape
    return values.swapaxes(-3, -2).reshape(*before, hidden, sets * batch)


def entries_by_walks(form: CellForm, values: np.ndarray, hidden: int, sets: int) -> np.ndarray:
    """(steps, nnz, batch) of all sets' Jacobians as (steps, nnz of one, walks): a former state's rows lie
    together, set by set."""
    steps, _, batch = values.shape
    parts, begin = [], 0
    for state in range(form.states):
        width = sum(hidden if dense else 1 for former, _, dense in form.blocks if former == state)
        rows = values[:, begin : begin + sets * hidden * width].reshape(steps, sets, hidden * width, batch)
        parts.append(rows.swapaxes(1, 2).reshape(steps, hidden * width, sets * batch))
        begin += sets * hidden * width
    return np.concatenate(parts, axis=1)


class Walk:
    """A layer's arrays in `dtype`, its reference, and the kernels that are to give the same."""

    def __init__(
        self, name: str, sizes: Sizes, reverse: int, ragged: int, dtype: str, rng: np.random.Generator
    ) -> None:
        self.form, self.kernels = kernels(name)
        self.sizes, self.reverse, self.dtype = sizes, reverse, dtype
        steps, hidden, sets, batch = sizes.steps, sizes.hidden, sizes.sets, sizes.batch
        gates, sums, scale = self.form.gates, self.form.sums, hidden**-0.5
        self.projected = rng.standard_normal((steps, gates, sets, hidden, batch)).astype(dtype)
        self.weight_hh = (rng.standard_normal((sets, sums, hidden, hidden)) * scale).astype(dtype)
        self.bias_hh = rng.standard_normal((sets, sums, hidden)).astype(dtype)
        self.unit = rng.standard_normal((sets, self.form.parameters, hidden)).astype(dtype) / 5
        self.initial = rng.standard_normal((self.form.states, sets, hidden, batch)).astype(dtype)
        self.lengths = rng.integers(0 if ragged else steps, steps + 1, batch)
        self.expected = Reference(
            STEPS[name], by_walks(self.projected).astype(float),
            *(a.astype(float) for a in (self.weight_hh, self.bias_hh)),
            self.unit.astype(float), by_walks(self.initial).astype(float), np.tile(self.lengths, sets),
            max(1, batch), bool(reverse),
        )  # fmt: skip

    def launch(self, device: Device, verb: str, *arrays: np.ndarray, **more: int) -> None:
        s = self.sizes
        scalars = dict(
            steps=s.steps, hidden=s.hidden, sets=s.sets, batch=s.batch, walks=s.sets * s.batch,
            reverse=self.reverse,
        )  # fmt: skip
        taken = [p.name for p in self.kernels[verb].parameters if not p.is_array]
        given = *arrays, *({**scalars, **more}[name] for name in taken)
        for array, found in zip(arrays, launch_text(self.kernels[verb], device, given), strict=False):
            array[...] = found

    def empty(self, *shape: int) -> np.ndarray:
        return np.full(shape, 7, self.dtype)

    def empty_states(self, *shape: int) -> np.ndarray:
        """Of shape (…, sets, hidden, batch)."""
        return self.empty(*shape, self.sizes.sets, self.sizes.hidden, self.sizes.batch)

    def forward(self, device: Device) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        s, form = self.sizes, self.form
        state = self.empty_states(s.steps, form.states)
        gates, final = self.empty_states(s.steps, form.kept), self.empty_states(form.states)
        self.launch(device, "forward", self.projected, self.weight_hh, self.bias_hh, self.unit, self.initial,
                    self.lengths, state, gates, final)  # fmt: skip
        return state, gates, final


#: Cells of which every run takes a small size here, and their twins among layers; test_kernel_pairs.py
#: compares both in long runs.
OF_SMALL_SIZES = ("rnn_relu", "ctrnn", "mgu", "ugrnn", "peephole_lstm")
CELLS = {
    **dict.fromkeys(FORMS, SIZES[4:5]), **dict.fromkeys(OF_SMALL_SIZES, SIZES[3:5]),
    "gru": SIZES[4:7], "lstm": SIZES[4:7], "rnn_tanh": SIZES[6:8], "mixed": SIZES,
    **dict.fromkeys(PARTLY, SIZES[3:4] + SIZES[7:9]), **dict.fromkeys(UNITS, UNIT_SIZES),
}  # fmt: skip
IN_EVERY_RUN = ("mixed", "partly", "turning")
CASES = [
    pytest.param(name, sizes, *flags, "float32" if sizes.steps in (37, 6) else "float64",
                 marks=[] if (name in IN_EVERY_RUN and sizes not in SIZES[6:])
                 or (name in OF_SMALL_SIZES and sizes.hidden < 20) else [pytest.mark.long],
                 id=f"{name}-{sizes.hidden}-{sizes.sets}-{sizes.batch}-{'-'.join(map(str, flags))}")
    for name, taken in CELLS.items() for sizes in taken
    for flags in (FLAGS if name in ("mixed", *UNITS) else FLAGS[2:])
]  # fmt: skip


@pytest.mark.parametrize("name, sizes, per_step, reverse, ragged, dtype", CASES)
def test_frames_compute_what_the_definitions_say(
    name: str, sizes: Sizes, per_step: int, reverse: int, ragged: int, dtype: str, emulated: Device,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    walk = Walk(name, sizes, reverse, ragged, dtype, rng)
    form, expected = walk.form, walk.expected
    steps, hidden, sets, batch = sizes.steps, sizes.hidden, sizes.sets, sizes.batch
    length, walks = 64 * max(hidden, steps), sets * batch
    state, gates, final = walk.forward(emulated)
    assert_close(by_walks(state), expected.states, length, what="state")
    assert_close(by_walks(final), expected.final, length, what="final")
    padded = np.arange(steps)[:, None] >= walk.lengths
    assert not np.moveaxis(gates, -1, 1)[padded].any(), "what a padded step keeps is 0"

    gradient = rng.standard_normal((steps, sets, hidden, batch) if per_step else 0).astype(dtype)
    own = by_walks(gradient).astype(float) if per_step else None
    chunks = -(-steps // sizes.chunk)
    boundary = rng.standard_normal((chunks, form.states, sets, hidden, batch)).astype(dtype)
    delta, entering = walk.empty_states(steps, form.deltas), np.empty_like(boundary)
    walk.launch(
        emulated, "backward", state, gates, walk.initial, walk.weight_hh, walk.unit, gradient, boundary,
        walk.lengths, np.empty(0, np.int32), delta, entering, chunk=sizes.chunk, per_step=per_step, guarded=0,
    )  # fmt: skip
    separate = [form.recurrent_gates.index(gate) for gate in form.separate]
    wanted = expected.back(sizes.chunk, by_walks(boundary).astype(float), own, separate)
    assert_close(by_walks(delta), wanted[0], length, what="delta")
    assert_close(by_walks(entering), wanted[1], length, what="entering")

    size, count = form.states * hidden, max(0, chunks - sizes.first)
    maps, exponents = walk.empty(count, walks, size, size), np.full((count, walks, size), 7, np.int32)
    offsets = walk.empty_states(count, form.states) if per_step else walk.empty(0)
    walk.launch(
        emulated, "reduce", gates, state, walk.initial, walk.weight_hh, walk.unit, gradient, walk.lengths,
        maps, exponents, offsets, chunk=sizes.chunk, first=sizes.first, per_step=per_step,
    )  # fmt: skip
    products, responses = expected.products(sizes.chunk, sizes.first, own)
    assert_close(np.ldexp(maps, exponents[..., None]), products, length, what="maps")
    if per_step:
        assert_close(by_walks(offsets), responses, length, what="offsets")

    entries = expected.entries(form.blocks)
    values = walk.empty(steps, entries.shape[1] * sets, batch)
    walk.launch(emulated, "fill", state, gates, walk.initial, walk.weight_hh, walk.unit, walk.lengths, values)
    assert_close(entries_by_walks(form, values, hidden, sets), entries, length, what="values")
