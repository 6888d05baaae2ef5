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

from bppsa_cupy.raw_kernels.elementwise import philox
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


def arguments(kernel: Kernel, variant: Variant, example: Case, rng: np.random.Generator) -> list[Any]:
    """NumPy arguments of one launch; outputs hold 7, to show that equal launches leave equal values."""
    taken: list[Any] = []
    for parameter in kernel.parameters:
        if not parameter.is_array:
            taken.append(example.scalars[parameter.name])
            continue
        dtype = {"real": variant.real, "index": variant.index}.get(
            parameter.type, ARRAY_TYPES[parameter.type]
        )
        size = eval(parameter.size, {"min": min, "max": max}, example.scalars)
        if parameter.role == "out":
            value = np.full(size, 7)
        elif parameter.name in example.arrays:
            value = example.arrays[parameter.name]
        else:
            assert parameter.type == "real", f"{kernel.name}: the cases give no {parameter.name}"
            value = rng.standard_normal(size)
        assert value.size == size, f"{kernel.name}: {parameter.name} has {value.size} elements, not {size}"
        taken.append(np.ascontiguousarray(value, dtype=dtype))
    return taken


# ---- layers and optimizers ----


@cases_of("relu_fill", "relu_forward", "relu_vjp")
def activation(rng: np.random.Generator) -> Iterator[Case]:
    for features, batch in PAIRS:
        output = np.maximum(rng.standard_normal((batch, features)), 0)
        yield case({"output": output}, features=features, batch=batch, size=features * batch)


@cases_of(
    "elu_forward", "gelu_forward", "leaky_relu_forward", "sigmoid_forward", "silu_forward",
    "softplus_forward", "slope_fill", "tanh_forward",
)  # fmt: skip
def activation_with_slope(rng: np.random.Generator) -> Iterator[Case]:
    for (features, batch), tanh_form in itertools.product(PAIRS, (0, 1)):
        size = features * batch
        inputs = 8 * rng.standard_normal(size)
        inputs[::7], inputs[1::7] = 0, 1.5  # where a slope changes, and where softplus becomes linear
        yield case(
            {"input": inputs}, features=features, batch=batch, size=size,
            negative_slope=-0.25, alpha=1.5, beta=2.0, threshold=3.0, tanh_form=tanh_form,
        )  # fmt: skip


@cases_of("dropout_forward", "dropout_fill")
def dropout(rng: np.random.Generator) -> Iterator[Case]:
    """The last threshold is the first number that is drawn."""
    key, layer, draw = 2**62 + 5, 3, 2**33 + 1
    first = int(philox(0, layer, draw, key)[0])
    for (features, batch), threshold in itertools.product(PAIRS, (0, 2**31, 2**32, first)):
        size = features * batch
        yield case(
            {"mask": rng.integers(0, 2, size), "draw": np.array([draw])}, features=features, batch=batch,
            size=size, key=key, layer=layer, threshold=threshold, scale=2.0, first=batch - 1,
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
        counted = np.array([max(rows - left_out, 0)])
        for smoothing in (0.0, 0.3):
            arrays = {"labels": labels, "scores": scores, "counted": counted}
            yield case(arrays, rows=rows, classes=classes, smoothing=smoothing)


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
    rows = np.array([[0.1, 0.9, 0.25, 1e-8, 0.01], [0.2, 0.0, 0.5, 0.1, 0.0], [0.3, 0.8, 0.999, 0, 1.0]])
    for count, blocked, row, decoupled, steps in (
        (0, 0, 0, 0, 3), (1, 0, 0, 1, 1), (33, 0, 1, 0, 1), (300, 0, 2, 1, 3), (300, 0, 0, 0, 2),
        (33, 1, 0, 0, 3),
    ):  # fmt: skip
        arrays = {
            "blocked": np.array([blocked]), "second": rng.random(count), "steps": np.array([steps]),
            "settings": np.append(rows[row], 0.5),
        }  # fmt: skip
        yield case(arrays, count=count, moving=count != 33, decoupled=decoupled)


# ---- convolution and pooling ----

#: Input, kernel, stride, padding, dilation (each vertical, horizontal).
WINDOWS = (
    ((1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((6, 5), (3, 2), (1, 2), (1, 0), (1, 1)),
    ((9, 7), (3, 3), (2, 1), (1, 1), (2, 1)),
    ((5, 8), (2, 3), (3, 3), (1, 1), (1, 2)),
    ((11, 9), (3, 2), (1, 1), (1, 0), (1, 2)),
)


def windows(dilated: bool = True) -> Iterator[dict[str, int]]:
    """The geometry scalars of each of WINDOWS, with the size of the output."""
    for sizes in WINDOWS:
        scalars = {}
        for axis, (side, letter) in enumerate((("height", "y"), ("width", "x"))):
            extent, kernel, stride, padding, dilation = (size[axis] for size in sizes)
            dilation = dilation if dilated else 1
            scalars |= {
                f"in_{side}": extent, f"kernel_{side}": kernel, f"stride_{letter}": stride,
                f"padding_{letter}": padding, **({f"dilation_{letter}": dilation} if dilated else {}),
                f"out_{side}": (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1,
            }  # fmt: skip
        yield scalars


def pools() -> Iterator[dict[str, int]]:
    """The windows of pools; squares that tile the input; windows of which the last ones end after the padded
    input (ceil_mode)."""
    yield from windows(dilated=False)
    yield {
        "in_height": 4, "in_width": 6, "kernel_height": 2, "kernel_width": 2, "stride_y": 2,
        "stride_x": 2, "padding_y": 0, "padding_x": 0, "out_height": 2, "out_width": 3,
    }  # fmt: skip
    yield {
        "in_height": 6, "in_width": 5, "kernel_height": 3, "kernel_width": 2, "stride_y": 3,
        "stride_x": 2, "padding_y": 1, "padding_x": 0, "out_height": 3, "out_width": 3,
    }  # fmt: skip


@cases_of("conv2d_forward", "conv2d_vjp", "conv2d_weight_gradient", "conv2d_unfold", "conv2d_fold")
def convolution(rng: np.random.Generator) -> Iterator[Case]:
    channels = ((1, 1, 1, 1), (2, 3, 4, 1), (3, 4, 6, 2), (0, 2, 2, 2))
    for scalars, (batch, before, after, groups) in itertools.product(windows(), channels):
        for biased in (0, 1):
            yield case(
                batch=batch, in_channels=before, out_channels=after, groups=groups, biased=biased, **scalars
            )


@cases_of("sparse_convolve")
def sparse_convolution(
    rng: np.random.Generator, phases: tuple[tuple[int, int], ...] = ((1, 1), (2, 3))
) -> Iterator[Case]:
    """Taps that need not be those of a kernel, of rows that may have none; in the last cases far ones, many
    per row, and outputs by the thousand."""
    sizes = ((5, 4, 1, 1), (9, 7, 2, 3)), ((1, 1, 1), (3, 4, 2), (20, 2, 3), (0, 2, 2)), (0, 17), (0, 1)
    large = (
        ((21, 23, 1, 1), (3, 2, 1), 200, 1), ((5, 4, 1, 1), (41, 2, 9), 150, 1),
        ((5, 4, 1, 1), (202, 1, 2), 30, 1),
    )  # fmt: skip
    for (of_plane, of_batch, entries, biased), (down, across) in itertools.product(
        (*itertools.product(*sizes), *large), phases
    ):
        (height, width, stride_y, stride_x), (batch, before, after) = of_plane, of_batch
        rows = after * down * across
        counts = rng.multinomial(entries, np.ones(rows) / rows)
        arrays = {
            "indptr": np.concatenate([[0], np.cumsum(counts)]), "which": rng.permutation(entries),
            "channels": rng.integers(0, before, entries),
            "downs": rng.integers(-3, 5 + (height > 20) * 12, entries),
            "rights": rng.integers(-3 - (height > 20) * 6, 5, entries),
        }  # fmt: skip
        yield case(
            arrays, batch=batch, in_channels=before, in_height=height, in_width=width, stride_y=stride_y,
            stride_x=stride_x, out_channels=after, out_height=6, out_width=5, phases_y=down,
            phases_x=across, nnz=entries, biased=biased,
        )  # fmt: skip


@cases_of("sparse_weight_gradient")
def sparse_gradient(rng: np.random.Generator) -> Iterator[Case]:
    yield from sparse_convolution(rng, ((1, 1),))


@cases_of("max_pool2d_forward", "max_pool2d_vjp")
def pooling(rng: np.random.Generator) -> Iterator[Case]:
    for scalars, planes in itertools.product(pools(), (0, 1, 3)):
        pixels = rng.integers(-3, 4, (planes, scalars["in_height"] * scalars["in_width"])).astype(float)
        pixels[:, -1] = np.nan
        indices = [_some_pixel(rng, scalars, y, x) for _ in range(planes)
                   for y in range(scalars["out_height"]) for x in range(scalars["out_width"])]  # fmt: skip
        yield case({"input": pixels, "indices": np.array(indices, dtype=int)}, planes=planes, **scalars)


@cases_of("avg_pool2d_forward", "avg_pool2d_vjp")
def averaging(rng: np.random.Generator) -> Iterator[Case]:
    for scalars, planes in itertools.product(pools(), (0, 1, 3)):
        for counted in (0, 1):
            yield case(planes=planes, count_include_pad=counted, **scalars)


@cases_of("batch_norm_statistics", "batch_norm_forward", "batch_norm_weight_gradient", "batch_norm_vjp")
def normalisation(rng: np.random.Generator) -> Iterator[Case]:
    sizes = ((1, 0, 3), (1, 1, 1), (2, 3, 1), (1, 5, 16), (3, 2, 37), (2, 1, 300))
    for (batch, channels, positions), flag, momentum in itertools.product(sizes, (0, 1), (-1.0, 0.1)):
        arrays = {"batches": np.full(flag, 4), "inverse_std": rng.random(channels) + 0.5}
        yield case(
            arrays, batch=batch, channels=channels, positions=positions, affine=flag, coupled=flag,
            tracked=flag, eps=1e-5, momentum=momentum,
        )  # fmt: skip


def _some_pixel(rng: np.random.Generator, s: dict[str, int], y: int, x: int) -> int:
    """A position inside the input that window (y, x) covers; -1 where it covers none."""
    rows = y * s["stride_y"] - s["padding_y"] + np.arange(s["kernel_height"])
    columns = x * s["stride_x"] - s["padding_x"] + np.arange(s["kernel_width"])
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


import kernel_cases_scan  # noqa: E402, F401  registers its cases
import kernel_cases_time  # noqa: E402, F401
