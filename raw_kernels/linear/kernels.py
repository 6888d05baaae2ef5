"""The kernels of a linear cell: the frames' CUDA C++ texts, filled with its struct, and their twins."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np

from bppsa_cupy.raw_kernels.kernel import Kernel, one_thread_per, read_parameters, read_source, split_family
from bppsa_cupy.raw_kernels.linear.form import LinearForm
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.simd.rows import ALL, load_rows, store_rows
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled, part

#: Elements of a copy that take as long as a gate of a unit does.
WORK = 4


def _rows_of(group, gates):
    """run(rows, hidden, arguments): group(row, k, count, hidden, *arguments) of each row and LANES of its
    units, which begin at k; count is None, or how many are left."""

    @part()
    def span(start, end, hidden, *arguments):
        H = np.uint64(hidden)
        full, rest = H // np.uint64(LANES) * np.uint64(LANES), H % np.uint64(LANES)
        for row in range(start, end):
            for k in range(np.uint64(0), full, np.uint64(LANES)):
                group(row, k, None, H, *arguments)
            if rest:
                group(row, full, rest, H, *arguments)

    run_spans = spans_of(span)

    @part()
    def all_rows(rows, hidden, arguments):
        run_spans(WORK * gates * rows * hidden, rows, (hidden, *arguments))

    return all_rows


def make_terms(form):
    """Factors and terms of the scan."""
    gates, numbers, function = form.gates, form.parameters, form.functions.terms

    @part()
    def group(row, k, count, H, projected, unit, a, b):
        x = load_rows(projected, row * np.uint64(gates) * H + k, H, gates, ALL, count)
        factor, term = function(x, load_rows(unit, k, H, numbers, ALL, count))
        store_rows(a, row * H + k, H, factor, count)
        store_rows(b, row * H + k, H, term, count)

    run_rows = _rows_of(group, gates)

    @compiled()
    def terms(projected, unit, a, b, rows, hidden):
        run_rows(rows, hidden, (projected, unit, a, b))

    return terms


def make_output(form):
    """What is put out."""
    gates, numbers, function = form.gates, form.parameters, form.functions.output

    @part()
    def group(row, k, count, H, projected, unit, state, y):
        x = load_rows(projected, row * np.uint64(gates) * H + k, H, gates, ALL, count)
        c, p = load_rows(state, row * H + k, H, 1, ALL, count), load_rows(unit, k, H, numbers, ALL, count)
        store_rows(y, row * H + k, H, function(x, c, p), count)

    run_rows = _rows_of(group, gates)

    @compiled()
    def output(projected, unit, state, y, rows, hidden):
        run_rows(rows, hidden, (projected, unit, state, y))

    return output


def make_by_state(form):
    """The gradient by the states of the one by what is put out."""
    gates, numbers, function = form.gates, form.parameters, form.functions.by_state

    @part()
    def group(row, k, count, H, projected, unit, state, gradient, by):
        x = load_rows(projected, row * np.uint64(gates) * H + k, H, gates, ALL, count)
        c, p = load_rows(state, row * H + k, H, 1, ALL, count), load_rows(unit, k, H, numbers, ALL, count)
        g = load_rows(gradient, row * H + k, H, 1, ALL, count)
        store_rows(by, row * H + k, H, function(g, x, c, p), count)

    run_rows = _rows_of(group, gates)

    @compiled()
    def by_state(projected, unit, state, gradient, by, rows, hidden):
        run_rows(rows, hidden, (projected, unit, state, gradient, by))

    return by_state


def make_by_inputs(form):
    """The gradients by projected input and unit parameters."""
    gates, numbers, function = form.gates, form.parameters, form.functions.by_inputs
    has_output = int(form.has_output)

    @part()
    def group(row, k, count, H, projected, unit, state, by_a, by_b, by_y, by):
        place = row * H + k
        x = load_rows(projected, row * np.uint64(gates) * H + k, H, gates, ALL, count)
        c, p = load_rows(state, place, H, has_output, ALL, count), load_rows(unit, k, H, numbers, ALL, count)
        (by_factor,), (by_term,) = (
            load_rows(by_a, place, H, 1, ALL, count),
            load_rows(by_b, place, H, 1, ALL, count),
        )
        g = (by_factor, by_term, *load_rows(by_y, place, H, has_output, ALL, count))
        by_x, by_p = function(g, x, c, p)
        origin = row * np.uint64(gates + numbers) * H + k
        store_rows(by, origin, H, by_x, count)
        store_rows(by, origin + np.uint64(gates) * H, H, by_p, count)

    run_rows = _rows_of(group, gates)

    @compiled()
    def by_inputs(projected, unit, state, by_a, by_b, by_y, by, rows, hidden):
        run_rows(rows, hidden, (projected, unit, state, by_a, by_b, by_y, by))

    return by_inputs


@cache
def linear_kernels_of(form: LinearForm) -> dict[str, Kernel]:
    """A linear cell's kernels by verb: terms and by_inputs; output and by_state where it has an output of its
    own."""
    twins = {"terms": make_terms(form), "by_inputs": make_by_inputs(form)}
    if form.has_output:
        twins |= {"output": make_output(form), "by_state": make_by_state(form)}
    return {verb: kernel_of(form, verb, twin) for verb, twin in twins.items()}


def kernel_of(form: LinearForm, verb: str, twin: Callable[..., None]) -> Kernel:
    """The kernel NAME_VERB: the frame's text with the cell's struct and numbers in it."""
    words = {"GATES": form.gates, "PARAMETERS": form.parameters, "OUTPUT": int(form.has_output)}
    name, frame = f"{form.name}_{verb}", split_family(read_source("linear/frames.cu"))[f"CELL_{verb}"]
    text = re.sub(rf"\b({'|'.join(words)})\b", lambda word: str(words[word[1]]), frame)
    text = text.replace("CELL_", f"{form.name}_").replace('#include "cell.cuh"\n', form.cuda)
    parameters = read_parameters(name, text)
    return Kernel(name, parameters, lambda s: one_thread_per(s["rows"] * s["hidden"]), twin, text)
