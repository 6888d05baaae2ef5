"""Matrix products over whole sequences: input projections, and gradients with respect to weights and to
the input; by kernels, or on a GPU by the array module's matmul (cuBLAS) where that was measured as faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch, rules
from bppsa_cupy.devices.autotune import rounded
from bppsa_cupy.raw_kernels.sequences import (
    WEIGHT_GRADIENT_TILE,
    fits,
    padded,
    sequence_gradient_sums,
    sequence_gradients,
    sequence_project,
    sequence_weight_gradient,
    staged_count,
    tiles,
)
from bppsa_cupy.timescan.ways import Walk, WalkSize, Weights

#: Steps times samples that one partial sum of a weight's gradient has at least: a host's thread is worth more
#: of them than a GPU's block.
LEAST_ON_HOST, LEAST_ON_GPU = 1 << 11, 128

#: Blocks of a multiprocessor that hide each other's waits.
BLOCKS = 4

#: Multiply-adds that one has at least on the host, and how many there are at most.
LEAST_WORK, MOST_ON_HOST = 1 << 20, 8


def project(
    device: Device,
    values: Array,
    weight: Array,
    bias: Array | None,
    out: Array,
    transposed: bool = False,
    way: str | None = None,
) -> Launch:
    """A call that sets out_t = W values_t + bias at every step; Wᵀ in place of W where `transposed`.

    Parameters
    ----------
    values
        (T, rows, B), of which the first I rows are taken.
    weight
        (O, I), or (I, O) where `transposed`; bias (O,) or None.
    out
        (T, O, B).
    way
        "kernel" or "matmul"; by default the quickest measured, or that of the rules.
    """
    steps, outputs, batch = out.shape
    inputs = weight.shape[0 if transposed else 1]

    def scratch(way: str) -> Launch:
        shapes = ((steps, rows, batch) for rows in (inputs, outputs))
        given, result = (device.arrange(device.zeros(shape, out.dtype)) for shape in shapes)
        return project(device, given, device.zeros(weight.shape, out.dtype), None, result, transposed, way)

    if way is None:
        way = _way(device, "project", out, outputs, inputs, scratch)
    if way == "matmul":
        # On a GPU all steps and samples are rows of one matrix.
        rows, made = _by_row(device, values[:, :inputs]), _by_row(device, out)

        def multiply() -> None:
            device.multiply(rows, weight if transposed else weight.T, made)
            if bias is not None:
                device.xp.add(made, bias, out=made)

        return multiply
    return device.bind(
        sequence_project, values, weight, weight.reshape(-1)[:0] if bias is None else bias, out, steps,
        values.shape[1], inputs, outputs, batch, transposed, bias is not None,
    )  # fmt: skip


def _way(
    device: Device, work: str, like: Array, rows: int, columns: int, scratch: Callable[[str], Launch]
) -> str:
    """ "kernel" or "matmul", for a product over the steps and samples of an array (T, rows, B)."""
    on_host, (steps, _, batch) = device.shared_bytes is None, like.shape
    default = "matmul" if rules.by_matmul(on_host, work, steps * batch * rows * columns) else "kernel"
    if not device.tunes or not like.size:
        return default
    key = f"{work} T{rounded(steps)} B{rounded(batch)} {rows}x{columns} {like.dtype}"
    return device.choices.choose(key, {way: partial(scratch, way) for way in ("kernel", "matmul")}, default)


def _by_row(device: Device, array: Array) -> Array:
    """Some rows of an array of walks (T, rows, B) of a GPU as a matrix (T B, rows)."""
    steps, rows, batch = array.shape
    return device.memory_of(array).reshape(steps * batch, rows)


def gradients_size(device: Device, size: WalkSize, inputs: int) -> int:
    """Elements of the workspace of `gradients`, for an input of so many rows; 0 where it does not apply."""
    rows, columns = size.cell.deltas * size.hidden, size.hidden + inputs
    if not device.units_innermost or not fits(rows, columns, size.itemsize):
        return 0
    pieces = -(-size.steps * size.batch // staged_count(rows, columns, size.itemsize))
    return max(1, min(device.workers, pieces)) * padded(rows) * padded(columns + 1)


def gradients(
    device: Device, walk: Walk, delta: Array, values: Array, workspace: Array, by: Weights
) -> Launch:
    """A call that overwrites all gradients with respect to weights and biases of one direction on a GPU, of a
    layer narrow enough for one read of what they follow from (`gradients_size`).

    Parameters
    ----------
    delta
        (T, cell.deltas * H, B).
    values
        (T, rows, B), of which the layer's input are the first rows.
    workspace
        Flat, of at least `gradients_size` elements.
    """
    assert by.weight_ih is not None
    size, cell, inputs = walk.size, walk.size.cell, by.weight_ih.shape[1]
    rows, columns = cell.deltas * size.hidden, size.hidden + inputs
    place = padded(rows) * padded(columns + 1)
    parts = gradients_size(device, size, inputs) // place
    partial, none = workspace[: parts * place], workspace[:0]
    recurrent = cell.recurrent_rows
    sources = device.remember(
        ("recurrent rows", recurrent), lambda: device.asarray(np.array(recurrent, np.int32))
    )
    add_up = device.bind(
        sequence_gradients, delta, walk.state, walk.initial, values, partial, size.steps, rows, size.state,
        size.hidden, values.shape[1], inputs, size.batch, parts, staged_count(rows, columns, size.itemsize),
        walk.reverse,
    )  # fmt: skip
    finish = device.bind(
        sequence_gradient_sums, partial, sources, by.weight_ih, by.weight_hh,
        none if by.bias_ih is None else by.bias_ih, none if by.bias_hh is None else by.bias_hh,
        parts, padded(rows), padded(columns + 1), cell.gates, cell.sums, size.hidden, inputs,
        by.bias_ih is not None,
    )  # fmt: skip

    def call() -> None:
        add_up()
        finish()

    return call


def partial_sums(device: Device, steps: int, batch: int, rows: int, columns: int) -> int:
    """How many partial sums the gradient of a weight (rows, columns) is made of.

    On a GPU as many as keep it busy, each in so many blocks as it has tiles. On the host, where one is also
    cut by rows, few, of a number that does not depend on the threads: each is worth one, and together they
    are small beside the deltas.
    """
    if device.xp is not np:
        most = max(16, -(-BLOCKS * device.workers // max(1, tiles(rows, columns))))
        return max(1, min(steps, most, steps * batch // LEAST_ON_GPU))
    terms = max(LEAST_ON_HOST, 8 * columns, LEAST_WORK // max(1, rows * columns))
    return max(1, min(steps, MOST_ON_HOST, steps * batch // terms))


def workspace_size(device: Device, steps: int, batch: int, rows: int, columns: int) -> int:
    """Elements of the workspace of a weight's gradient: partial sums of it and of its bias's. Never fewer for
    more rows."""
    counts = rows, *(range(WEIGHT_GRADIENT_TILE, rows, WEIGHT_GRADIENT_TILE) if device.xp is not np else ())
    return max(partial_sums(device, steps, batch, count, columns) * count for count in counts) * (columns + 1)


def weight_gradient(
    device: Device,
    delta: Array,
    first: int,
    values: Array,
    workspace: Array,
    weight: Array,
    bias: Array | None,
    initial: Array | None = None,
    reverse: bool = False,
    way: str | None = None,
) -> Launch:
    """A call that overwrites `weight` (J, K) and `bias` (J,) with the sums over steps and samples of
    delta times value, and of delta.

    Parameters
    ----------
    delta
        (T, rows, B), of which J rows from `first` on are taken.
    values
        (T, rows, B), of which the first K rows are taken.
    workspace
        Flat, of at least `workspace_size` elements.
    initial
        None, or the state before step 0, (>= K, B): then step s's value is that of step s - 1.
    way
        See `project`.
    """
    steps, delta_rows, batch = delta.shape
    rows, columns = weight.shape

    def scratch(way: str) -> Launch:
        shapes = ((steps, count, batch) for count in (rows, columns))
        left, right = (device.arrange(device.zeros(shape, delta.dtype)) for shape in shapes)
        space, result = device.empty(workspace.shape, delta.dtype), device.empty(weight.shape, delta.dtype)
        return weight_gradient(device, left, 0, right, space, result, None, way=way)

    if way is None:
        way = _way(device, "weight", delta, rows, columns, scratch)
    if way == "matmul":
        rows_of_delta, taken = delta[:, first : first + rows], values[:, :columns]
        before = None if initial is None else initial[:columns]
        return _gradient_by_matmul(device, rows_of_delta, taken, weight, bias, before, reverse)
    parts = partial_sums(device, steps, batch, rows, columns)
    weights, biases = weight, bias
    if parts > 1:
        weights = workspace[: parts * rows * columns].reshape(parts, rows, columns)
    if parts > 1 or bias is None:
        biases = workspace[parts * rows * columns :][: parts * rows].reshape(parts, rows)
    launch = device.bind(
        sequence_weight_gradient, delta, values, workspace[:0] if initial is None else initial, weights,
        biases, steps, delta_rows, first, rows, values.shape[1], columns, batch, parts, initial is not None,
        reverse,
    )  # fmt: skip
    if parts == 1:
        return launch

    def call() -> None:
        launch()
        device.xp.sum(weights, axis=0, out=weight)
        if bias is not None:
            device.xp.sum(biases, axis=0, out=bias)

    return call


def _gradient_by_matmul(
    device: Device,
    delta: Array,
    values: Array,
    weight: Array,
    bias: Array | None,
    initial: Array | None,
    reverse: bool,
) -> Launch:
    """`weight_gradient` on a GPU by one product of the deltas of all steps and samples with their values; and
    one more of the first step's, whose values are the initial state."""
    batch, xp = delta.shape[2], device.xp
    rows_of_delta, taken = _by_row(device, delta), _by_row(device, values)
    pairs = [(rows_of_delta, taken)]
    if initial is not None:
        later, first = (
            (rows_of_delta[:-batch], rows_of_delta[-batch:])
            if reverse
            else (rows_of_delta[batch:], rows_of_delta[:batch])
        )
        pairs = [(first, device.memory_of(initial)), (later, taken[batch:] if reverse else taken[:-batch])]
    # A product with ones reads the deltas at the speed of memory; CuPy's sum takes three times as long.
    ones = None if bias is None else xp.ones((1, len(rows_of_delta)), bias.dtype)

    def call() -> None:
        for number, (deltas, factors) in enumerate(pairs):
            device.multiply(deltas.T, factors, weight, add=number > 0)
        if ones is not None and bias is not None:
            device.multiply(ones, rows_of_delta, bias[None])

    return call
