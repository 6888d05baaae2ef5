"""Arguments for every kernel: sizes none, one, odd, and such that no block is full.

A generator is registered for the kernels it serves and yields cases. A case gives the scalars, and the
arrays that are not plain random numbers: every index and integer array, and reals of a special kind.
What a kernel does not take is ignored, so kernels of one family share a generator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from bppsa_cupy.raw_kernels.kernel import ARRAY_TYPES, Kernel, Variant


class Case(NamedTuple):
    """Scalars and arrays of one launch, by parameter name; index arrays in any integer dtype."""

    scalars: dict[str, float]
    arrays: dict[str, np.ndarray]


Generator = Callable[[np.random.Generator], Iterator[Case]]

#: The generator of each kernel's cases.
CASES: dict[str, Generator] = {}

#: Two sizes: none, one, odd, and more than a block of 256 threads takes.
PAIRS = ((0, 3), (3, 0), (1, 1), (7, 3), (257, 1), (60, 9))


def cases_of(*names: str) -> Callable[[Generator], Generator]:
    """Register a generator for the kernels `names`."""

    def register(generator: Generator) -> Generator:
        for name in names:
            assert name not in CASES
            CASES[name] = generator
        return generator

    return register


def case(arrays: dict[str, np.ndarray] | None = None, **scalars: float) -> Case:
    return Case(scalars, arrays or {})


def arguments(kernel: Kernel, variant: Variant, one: Case, rng: np.random.Generator) -> list[Any]:
    """NumPy arguments of one launch; outputs hold 7, to show that equal launches leave equal values."""
    taken: list[Any] = []
    for parameter in kernel.parameters:
        if not parameter.is_array:
            taken.append(one.scalars[parameter.name])
            continue
        dtype = {"real": variant.real, "index": variant.index}.get(
            parameter.type, ARRAY_TYPES[parameter.type]
        )
        size = eval(parameter.size, {"min": min, "max": max}, one.scalars)
        if parameter.role == "out":
            value = np.full(size, 7)
        elif parameter.name in one.arrays:
            value = one.arrays[parameter.name]
        else:
            assert parameter.type == "real", f"{kernel.name}: the cases give no {parameter.name}"
            value = rng.standard_normal(size)
        assert value.size == size, f"{kernel.name}: {parameter.name} has {value.size} elements, not {size}"
        taken.append(np.ascontiguousarray(value, dtype=dtype))
    return taken


# ---- layers and optimizers ----


@cases_of("relu_fill", "relu_forward", "relu_vjp", "tanh_fill", "sigmoid_fill")
def activation(rng: np.random.Generator) -> Iterator[Case]:
    for features, batch in PAIRS:
        output = np.maximum(rng.standard_normal((batch, features)), 0)
        yield case({"output": output}, features=features, batch=batch, size=features * batch)


@cases_of("dropout_forward", "dropout_fill")
def dropout(rng: np.random.Generator) -> Iterator[Case]:
    for (features, batch), threshold in itertools.product(PAIRS, (0, 2**31, 2**32)):
        size = features * batch
        yield case(
            {"kept": rng.integers(0, 2, size)}, features=features, batch=batch, size=size, key=2**62 + 5,
            layer=3, draw=2**33 + 1, threshold=threshold, scale=2.0,
        )  # fmt: skip


@cases_of("gather_fill")
def gather(rng: np.random.Generator) -> Iterator[Case]:
    for sources, entries in ((1, 0), (1, 1), (5, 7), (40, 257)):
        yield case({"map": rng.integers(0, sources, entries)}, sources=sources, entries=entries)


@cases_of("cross_entropy")
def classification(rng: np.random.Generator) -> Iterator[Case]:
    for (rows, classes), left_out in itertools.product(((0, 3), (1, 1), (5, 3), (67, 10)), (0, 3)):
        labels = rng.integers(0, classes, rows)
        labels[:left_out] = -1
        scores = 30 * rng.standard_normal((rows, classes))
        scores[:left_out] = np.nan
        counted = max(rows - left_out, 0)
        yield case({"labels": labels, "scores": scores}, rows=rows, classes=classes, counted=counted)


@cases_of("finite_check")
def finite(rng: np.random.Generator) -> Iterator[Case]:
    for count, bad in itertools.product((0, 1, 300), (None, np.nan, -np.inf)):
        values = rng.standard_normal(count)
        values[-1:] = values[-1:] if bad is None else bad
        for flag in (0, 1):
            yield case({"values": values, "flag": np.array([flag])}, count=count)


@cases_of("step_count")
def counted(rng: np.random.Generator) -> Iterator[Case]:
    for blocked in (0, 1):
        yield case({"blocked": np.array([blocked]), "steps": np.array([7])})


@cases_of("sgd_step", "adam_step")
def update(rng: np.random.Generator) -> Iterator[Case]:
    for count, blocked, momentum, nesterov, steps in (
        (0, 0, 0.9, 0, 3), (1, 0, 0.0, 0, 1), (33, 0, 0.9, 0, 1), (300, 0, 0.9, 1, 3), (33, 1, 0.9, 0, 3),
    ):  # fmt: skip
        arrays = {"blocked": np.array([blocked]), "second": rng.random(count), "steps": np.array([steps])}
        yield case(
            arrays, count=count, rate=0.1, momentum=momentum, dampening=0.25, weight_decay=0.01,
            nesterov=nesterov, beta1=0.9, beta2=0.999, epsilon=1e-8,
        )  # fmt: skip


# ---- convolution and pooling ----

#: Input, kernel, stride, padding, dilation (each vertical, horizontal).
WINDOWS = (
    ((1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((6, 5), (3, 2), (1, 2), (1, 0), (1, 1)),
    ((9, 7), (3, 3), (2, 1), (1, 1), (2, 1)),
    ((5, 8), (2, 3), (3, 3), (1, 1), (1, 2)),
    ((11, 9), (3, 2), (1, 1), (1, 0), (1, 2)),
)


def windows() -> Iterator[dict[str, int]]:
    """The geometry scalars of each of WINDOWS, with the size of the output."""
    for sizes in WINDOWS:
        scalars = {}
        for axis, (side, letter) in enumerate((("height", "y"), ("width", "x"))):
            extent, kernel, stride, padding, dilation = (size[axis] for size in sizes)
            scalars |= {
                f"in_{side}": extent, f"kernel_{side}": kernel, f"stride_{letter}": stride,
                f"padding_{letter}": padding, f"dilation_{letter}": dilation,
                f"out_{side}": (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1,
            }  # fmt: skip
        yield scalars


@cases_of("conv2d_forward", "conv2d_vjp", "conv2d_weight_gradient")
def convolution(rng: np.random.Generator) -> Iterator[Case]:
    channels = ((1, 1, 1, 1), (2, 3, 4, 1), (3, 4, 6, 2), (0, 2, 2, 2))
    for scalars, (batch, before, after, groups) in itertools.product(windows(), channels):
        for biased in (0, 1):
            yield case(
                batch=batch, in_channels=before, out_channels=after, groups=groups, biased=biased, **scalars
            )


@cases_of("max_pool2d_forward", "max_pool2d_vjp")
def pooling(rng: np.random.Generator) -> Iterator[Case]:
    for scalars, planes in itertools.product(windows(), (0, 1, 3)):
        pixels = rng.integers(-3, 4, (planes, scalars["in_height"] * scalars["in_width"])).astype(float)
        pixels[:, -1] = np.nan
        indices = [_some_pixel(rng, scalars, y, x) for _ in range(planes)
                   for y in range(scalars["out_height"]) for x in range(scalars["out_width"])]  # fmt: skip
        yield case({"input": pixels, "indices": np.array(indices, dtype=int)}, planes=planes, **scalars)


@cases_of("avg_pool2d_forward", "avg_pool2d_vjp")
def averaging(rng: np.random.Generator) -> Iterator[Case]:
    for scalars, planes in itertools.product(windows(), (0, 1, 3)):
        for counted, override in ((0, 0), (1, 0), (1, 3), (0, -2)):
            yield case(planes=planes, count_include_pad=counted, divisor_override=override, **scalars)


def _some_pixel(rng: np.random.Generator, s: dict[str, int], y: int, x: int) -> int:
    """A position inside the input that window (y, x) covers; -1 where it covers none."""
    rows = y * s["stride_y"] - s["padding_y"] + np.arange(s["kernel_height"]) * s["dilation_y"]
    columns = x * s["stride_x"] - s["padding_x"] + np.arange(s["kernel_width"]) * s["dilation_x"]
    rows = rows[(rows >= 0) & (rows < s["in_height"])]
    columns = columns[(columns >= 0) & (columns < s["in_width"])]
    return int(rng.choice(rows) * s["in_width"] + rng.choice(columns)) if rows.size and columns.size else -1


@cases_of("max_pool2d_fill")
def pooling_entries(rng: np.random.Generator) -> Iterator[Case]:
    for window_count, entries, batch in ((2, 0, 3), (2, 5, 0), (1, 1, 1), (5, 11, 3), (9, 40, 7)):
        arrays = {
            "indices": rng.integers(-1, 4, (batch, window_count)),
            "window": rng.integers(0, window_count, entries),
            "candidate": rng.integers(0, 4, entries),
        }
        yield case(arrays, windows=window_count, entries=entries, batch=batch)


# ---- the scan ----

BATCHES = (1, 3, 35)
FLAGS = tuple(itertools.product((0, 1), repeat=2))


def random_pattern(
    rng: np.random.Generator, rows: int, columns: int, density: float
) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(rng.random((rows, columns)) < density, dtype=np.int64)


def selection(rng: np.random.Generator, rows: int, columns: int) -> scipy.sparse.csr_array:
    """At most one entry a row."""
    chosen = np.zeros((rows, columns), dtype=np.int64)
    chosen[np.arange(rows), rng.integers(0, columns, rows)] = rng.random(rows) < 0.8
    return scipy.sparse.csr_array(chosen)


def full_rows(rng: np.random.Generator, rows: int, columns: int) -> scipy.sparse.csr_array:
    """Every row empty or full."""
    return scipy.sparse.csr_array(
        (rng.random(rows) < 0.6)[:, None] * np.ones((rows, columns), dtype=np.int64)
    )


@cases_of("csr_spmv", "product_scale_rows", "product_scale_columns")
def one_matrix(rng: np.random.Generator) -> Iterator[Case]:
    for rows, columns, density in ((1, 1, 1.0), (7, 5, 0.5), (40, 33, 0.2), (3, 4, 0.0), (0, 2, 0.0)):
        matrix = random_pattern(rng, rows, columns, density)
        arrays = {"indptr": matrix.indptr, "indices": matrix.indices}
        for batch, (first, second) in itertools.product(BATCHES, FLAGS):
            yield case(
                arrays, rows=rows, columns=columns, nnz=matrix.nnz, batch=batch, batched=first, affine=second,
                a_batched=first, b_batched=second,
            )  # fmt: skip


@cases_of("product_dense")
def dense_blocks(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns in ((1, 1, 1), (5, 7, 3), (3, 0, 2), (0, 2, 2), (4, 3, 0), (17, 9, 19)):
        for batch, (first, second) in itertools.product(BATCHES, FLAGS):
            yield case(
                rows=rows, inner=inner, columns=columns, batch=batch, a_batched=first, b_batched=second
            )


@cases_of("product_row_wise", "product_terms")
def general_products(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns, density in ((1, 1, 1, 1.0), (7, 5, 6, 0.5), (20, 30, 25, 0.1), (3, 4, 2, 0.0)):
        a, b = random_pattern(rng, rows, inner, density), random_pattern(rng, inner, columns, density)
        yield from product_of(a, b)
    # More columns than a block has sums of at a time, and more entries of A's row than it has threads.
    yield from product_of(random_pattern(rng, 2, 3, 0.7), random_pattern(rng, 3, 1700, 0.005))
    yield from product_of(random_pattern(rng, 2, 300, 0.8), random_pattern(rng, 300, 5, 0.2))


@cases_of("product_select_rows")
def selected_rows(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns, density in ((1, 1, 1, 1.0), (7, 5, 6, 0.5), (40, 30, 25, 0.1), (3, 4, 2, 0.0)):
        yield from product_of(selection(rng, rows, inner), random_pattern(rng, inner, columns, density))


@cases_of("product_full_rows")
def products_of_full_rows(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns, density in ((1, 1, 1, 1.0), (7, 5, 6, 0.5), (40, 30, 25, 0.1), (3, 4, 2, 0.0)):
        yield from product_of(random_pattern(rng, rows, inner, density), full_rows(rng, inner, columns))


def product_of(a: scipy.sparse.csr_array, b: scipy.sparse.csr_array) -> Iterator[Case]:
    """Patterns of a product and its term list, from its definition: entry by entry."""
    c = scipy.sparse.csr_array(a @ b)
    c.sort_indices()
    pairs: list[list[tuple[int, int]]] = [[] for _ in range(c.nnz)]
    for row in range(a.shape[0]):
        places = {column: place for place, column in enumerate(c.indices[c.indptr[row] : c.indptr[row + 1]])}
        for i in range(a.indptr[row], a.indptr[row + 1]):
            middle = a.indices[i]
            for j in range(b.indptr[middle], b.indptr[middle + 1]):
                pairs[c.indptr[row] + places[b.indices[j]]].append((i, j))
    terms = np.array([pair for entry in pairs for pair in entry], dtype=np.int64).reshape(-1, 2)
    arrays = {
        "a_indptr": a.indptr, "a_indices": a.indices, "b_indptr": b.indptr, "b_indices": b.indices,
        "c_indptr": c.indptr, "c_indices": c.indices,
        "term_ptr": np.cumsum([0, *map(len, pairs)]), "a_position": terms[:, 0], "b_position": terms[:, 1],
    }  # fmt: skip
    for batch, (first, second) in itertools.product(BATCHES, FLAGS):
        yield case(
            arrays, rows=a.shape[0], inner=a.shape[1], columns=b.shape[1], a_nnz=a.nnz, b_nnz=b.nnz,
            c_nnz=c.nnz, terms=len(terms), batch=batch, a_batched=first, b_batched=second,
        )  # fmt: skip


import kernel_cases_recurrent  # noqa: E402, F401  registers its cases
import kernel_cases_timescan  # noqa: E402, F401
