"""A cell's texts: the CUDA struct under the emulator and NVRTC, its twins' functions on lanes and numbers."""

from __future__ import annotations

import functools

import numba
import numpy as np
import pytest
from cell_cases import drawn_cells, every_function_cell
from emulator.device import EmulatedDevice
from emulator.text_kernel import array_in, array_out, scalar, text_kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some
from nvrtc import measure, nvrtc
from tolerances import assert_close

from bppsa_cupy.cells.probe import Points, probe_points
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.kernel import Variant, inline_headers
from bppsa_cupy.raw_kernels.twins.simd import functions
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, store

EVALUATE = """
template <int N> struct Numbers { real values[N < 1 ? 1 : N]; };

template <int N>
__device__ Numbers<N> read(const real* __restrict__ given, size_type count, size_type& place)
{
    Numbers<N> numbers;
    for (int k = 0; k < N; ++k, place += count) numbers.values[k] = given[place];
    return numbers;
}

template <int N>
__device__ void put(const Numbers<N>& numbers, real* found, size_type count, size_type& place)
{
    for (int k = 0; k < N; ++k, place += count) found[place] = numbers.values[k];
}

template <class Cell>
__device__ void evaluate(const real* __restrict__ given, real* found, size_type count, size_type i)
{
    constexpr int G = Cell::gates, S = Cell::states, P = Cell::parameters;
    size_type in = i, out = i;
    const auto x = read<G>(given, count, in), u = read<G>(given, count, in);
    const auto before = read<S>(given, count, in);
    const auto p = read<P>(given, count, in);
    const auto g = read<S>(given, count, in);
    const auto w = read<G>(given, count, in);
    Numbers<S> after, by_before, entered = g, row, carried;
    Numbers<Cell::kept> kept;
    Numbers<G> by_x;
    Numbers<Cell::separate> by_u;
    Numbers<P> by_p;
    Numbers<Cell::coefficients> a;
    Cell::forward(x.values, u.values, before.values, p.values, after.values, kept.values);
    Cell::backward(g.values, kept.values, after.values, before.values, p.values, by_x.values, by_u.values,
                   by_before.values, by_p.values);
    Cell::coefficients_of(kept.values, after.values, before.values, p.values, a.values);
    Cell::enter(a.values, entered.values);
    Cell::entry(a.values, w.values, row.values);
    Cell::carry(a.values, entered.values, carried.values);
    put(after, found, count, out);
    put(kept, found, count, out);
    put(by_x, found, count, out);
    put(by_u, found, count, out);
    put(by_before, found, count, out);
    put(by_p, found, count, out);
    put(a, found, count, out);
    put(entered, found, count, out);
    put(row, found, count, out);
    put(carried, found, count, out);
}
"""


@functools.cache
def forms() -> dict[str, CellForm]:
    """The built-in cells and one of every function."""
    return {**FORMS, "every_function": every_function_cell().form}


def results_of(form: CellForm) -> int:
    """Numbers that `evaluate` gives for one point."""
    return 5 * form.states + form.kept + form.deltas + form.coefficients


def text_of(cells: dict[str, CellForm]) -> str:
    """A kernel that evaluates one of several cells at every point."""
    structs = "\n".join(f"namespace {name} {{\n{form.cuda}\n}}" for name, form in cells.items())
    cases = "\n".join(
        f"    case {place}: evaluate<{name}::Cell>(given, found, count, i); break;"
        for place, name in enumerate(cells)
    )
    return f"""
#include "prelude.cuh"
#include "activations.cuh"
{structs}
{EVALUATE}
extern "C" __global__ void probe(const real* __restrict__ given, real* __restrict__ found, int which,
                                 size_type rows, size_type results, size_type count)
{{
    GRID_STRIDE(i, count) switch (which) {{
{cases}
    }}
}}
"""


def arguments_of(form: CellForm, count: int, dtype: str) -> tuple[Points, tuple, tuple]:
    """Points, gradients by the new states and weights, of one dtype."""
    points = probe_points(form, count, seed=3)
    random = np.random.default_rng(4)
    g, w = ([random.standard_normal(count) for _ in range(size)] for size in (form.states, form.gates))
    cast = tuple(tuple(value.astype(dtype) for value in kind) for kind in (*points, g, w))
    return Points(*cast[:4]), cast[4], cast[5]


def by_functions(form: CellForm, points: Points, g: tuple, w: tuple) -> list[np.ndarray]:
    """What `evaluate` gives, by the twins' functions on NumPy's arrays."""
    f, like = form.functions, points.x[0]
    after, kept = f.forward(*points)
    by_x, by_u, by_before, by_p = f.backward(g, kept, after, points.before, points.p)
    a = f.coefficients(kept, after, points.before, points.p)
    entered = f.enter(a, g)
    parts = (after, kept, by_x, by_u, by_before, by_p, a, entered, f.entry(a, w), f.carry(a, entered))
    return [np.broadcast_to(value, like.shape).astype(like.dtype) for part in parts for value in part]


def assert_structs_give(emulated: EmulatedDevice, cells: dict[str, CellForm], dtype: str) -> None:
    """What the functions give, by every cell's struct."""
    kernel = text_kernel(
        text_of(cells),
        array_in("given", "real", "rows * count"),
        array_out("found", "real", "results * count"),
        scalar("which", "flag"),
        *(scalar(name) for name in ("rows", "results", "count")),
    )
    for which, (name, form) in enumerate(cells.items()):
        points, g, w = arguments_of(form, 40, dtype)
        given = np.concatenate([value for kind in (*points, g, w) for value in kind])
        expected = by_functions(form, points, g, w)
        found = np.zeros(len(expected) * 40, dtype)
        assert len(expected) == results_of(form)
        emulated.launch(kernel, given, found, which, given.size // 40, len(expected), 40)
        for row, (one, other) in enumerate(zip(found.reshape(-1, 40), expected, strict=True)):
            assert_close(one, other, 64, what=f"{name}, row {row}")


@pytest.mark.parametrize("dtype", some("float64", long=["float32"]))
def test_structs_give_what_the_functions_give(emulated: EmulatedDevice, dtype: str) -> None:
    assert_structs_give(emulated, forms(), dtype)


@settings(max_examples=2)
@given(drawn=st.tuples(drawn_cells(), drawn_cells()))
def test_structs_of_drawn_cells_give_what_the_functions_give(emulated: EmulatedDevice, drawn) -> None:
    cells = {f"cell_{place}": one.cell().form for place, one in enumerate(drawn)}
    assert_structs_give(emulated, cells, "float64")


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is missing: install nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("real", some("float64", long=["float32"]))
def test_structs_compile_for_a_gpu(real: str) -> None:
    variant = Variant(real)
    text = variant.type_definitions() + inline_headers(text_of(forms()))
    assert measure(text, "probe", variant, "sm_80").spill_bytes == 0


def compiled_for_lanes(form: CellForm):
    """`evaluate` by the twins' functions on lanes: (given, found), arrays of LANES a number."""
    sizes = {"x": form.gates, "u": form.gates, "before": form.states, "p": form.parameters, "g": form.states}
    sizes["w"] = form.gates
    lines, place = ["def evaluate(given, found):"], 0
    for name, size in sizes.items():
        loads = "".join(f"load(given, size({(place + k) * LANES})), " for k in range(size))
        lines.append(f"    {name} = ({loads})")
        place += size
    lines += [
        "    after, kept = forward(x, u, before, p)",
        "    by_x, by_u, by_before, by_p = backward(g, kept, after, before, p)",
        "    a = coefficients(kept, after, before, p)",
        "    entered = enter(a, g)",
        "    row, carried = entry(a, w), carry(a, entered)",
    ]
    results = {"after": form.states, "kept": form.kept, "by_x": form.gates, "by_u": len(form.separate)}
    results |= {"by_before": form.states, "by_p": form.parameters, "a": form.coefficients}
    results |= dict.fromkeys(("entered", "row", "carried"), form.states)
    place = 0
    for name, size in results.items():
        lines += [f"    store(found, size({(place + k) * LANES}), {name}[{k}])" for k in range(size)]
        place += size
    room = {"load": load, "store": store, "size": np.uint64, **vars(form.functions)}
    exec("\n".join(lines), room)
    return numba.njit(error_model="numpy")(room["evaluate"])


@pytest.mark.parametrize("dtype", some("float64", long=["float32"]))
def test_functions_take_lanes(dtype: str) -> None:
    form = FORMS["peephole_lstm"]
    points, g, w = arguments_of(form, LANES, dtype)
    given = np.concatenate([value for kind in (*points, g, w) for value in kind])
    expected = by_functions(form, points, g, w)
    found = np.zeros(len(expected) * LANES, dtype)
    compiled_for_lanes(form)(given, found)
    for row, (one, other) in enumerate(zip(found.reshape(-1, LANES), expected, strict=True)):
        assert_close(one, other, 64, what=f"row {row}")


@pytest.mark.parametrize("dtype", some("float64", long=["float32"]))
def test_elementary_functions_take_lanes_and_numbers(dtype: str) -> None:
    @numba.njit
    def evaluate(x, found):
        lanes = load(x, np.uint64(0))
        store(found, np.uint64(0), functions.logarithm(lanes))
        store(found, np.uint64(LANES), functions.sine(lanes))
        store(found, np.uint64(2 * LANES), functions.cosine(lanes))
        store(found, np.uint64(3 * LANES), functions.sqrt(lanes))
        one = x[0]
        return (
            functions.logarithm(one),
            functions.sine(one),
            functions.cosine(one),
            functions.sqrt(one),
        )

    x = np.linspace(0.1, 5, LANES).astype(dtype)
    found = np.zeros(4 * LANES, dtype)
    first = evaluate(x, found)
    expected = np.array([np.log(x), np.sin(x), np.cos(x), np.sqrt(x)])
    assert_close(found.reshape(4, LANES), expected, 4)
    assert_close(np.array(first, dtype), expected[:, 0], 4, scale=1)
    assert str(evaluate.nopython_signatures[0].return_type) == f"UniTuple({dtype} x 4)"
