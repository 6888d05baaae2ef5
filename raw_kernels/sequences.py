"""Sequences of steps and samples: layout changes, products with a matrix, and weight gradients."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.products.gradient_by_rows import (
    OuterProducts,
    gradient_by_rows,
    gradient_by_samples,
)
from bppsa_cupy.raw_kernels.twins.products.lane_products import multiply
from bppsa_cupy.raw_kernels.twins.products.packing import pack
from bppsa_cupy.raw_kernels.twins.products.panels import PANEL, lanes_as_rows
from bppsa_cupy.raw_kernels.twins.products.project_by_outputs import (
    PANELS,
    project_by_outputs,
    project_by_terms,
)
from bppsa_cupy.raw_kernels.twins.products.tiles import lanes_of
from bppsa_cupy.raw_kernels.twins.scans.batched import load_some, store_some
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, store
from bppsa_cupy.raw_kernels.twins.simd.squares import copy_transposed
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled

# ---- sequence_gather ----


@compiled()
def _strides_of(steps, batch, total, by_time):
    """Elements from a sample to the next, and from a step to the next, of sequences (batch, steps, total), or
    (steps, batch, total) where they are `by_time`."""
    return (total, batch * total) if by_time else (steps * total, total)


@spans_of
@compiled()
def _gather_span(start, end, outside, lengths, inside, steps, features, batch, total, offset, by_time):
    by_sample, by_step = _strides_of(steps, batch, total, by_time)
    for t in range(np.int64(start), np.int64(end)):
        source, target = np.uint64(t * by_step + offset), np.uint64(t * features * batch)
        copy_transposed(outside, source, by_sample, batch, features, inside, target, batch)
        for b in range(batch):
            if t >= lengths[b]:
                for f in range(np.uint64(features)):
                    inside[target + f * np.uint64(batch) + np.uint64(b)] = 0


@kernel(lambda s: one_thread_per(s["steps"] * s["features"] * s["batch"]))
@compiled()
def sequence_gather(outside, lengths, inside, steps, features, batch, total, offset, by_time):
    arguments = outside, lengths, inside, steps, features, batch, total, offset, by_time
    _gather_span(steps * features * batch, steps, arguments)


# ---- sequence_scatter ----


@spans_of
@compiled()
def _scatter_span(start, end, inside, lengths, outside, steps, rows, features, batch, total, offset, by_time):
    by_sample, by_step = _strides_of(steps, batch, total, by_time)
    for t in range(np.int64(start), np.int64(end)):
        source, target = np.uint64(t * rows * batch), np.uint64(t * by_step + offset)
        copy_transposed(inside, source, batch, features, batch, outside, target, by_sample)
        for b in range(batch):
            if t >= lengths[b]:
                for f in range(np.uint64(features)):
                    outside[target + np.uint64(b * by_sample) + f] = 0


@kernel(lambda s: one_thread_per(s["steps"] * s["features"] * s["batch"]))
@compiled()
def sequence_scatter(inside, lengths, outside, steps, rows, features, batch, total, offset, by_time):
    arguments = inside, lengths, outside, steps, rows, features, batch, total, offset, by_time
    _scatter_span(steps * features * batch, steps, arguments)


# ---- sequence_project ----

#: Multiply-adds that are worth a task, and how many tasks there are where there is so much work.
PROJECT_LEAST, PROJECT_TASKS = 1 << 21, 32


#: Entries of a matrix up to which it is read anew for the samples of each step, where they fill the lanes; up
#: to so many inputs it also is where they fill two fifths of them (measured).
PROJECT_SMALL, PROJECT_FEW = 1 << 18, 24


#: Panels of outputs of a task, at most.
PROJECT_PANELS = 4


def _is_by_samples(inputs, outputs, batch):
    filled = (batch + LANES - 1) // LANES * LANES
    return inputs * outputs <= PROJECT_SMALL and (
        batch == filled or (inputs <= PROJECT_FEW and 5 * batch >= 2 * filled)
    )


#: Inputs from which on those of a block of samples are copied side by side: where they lie, their lines would
#: share few sets of the first cache.
PROJECT_COPIED = 96


@compiled()
def _project_by_samples(task, tasks, values, packed, bias, out, steps, rows, inputs, outputs, batch):
    """One task: a span of the steps, with samples as lanes."""
    start, end = steps * task // tasks, steps * (task + 1) // tasks
    former = flush_denormals()
    B, L, none = np.uint64(batch), np.uint64(LANES), np.uint64(0)
    count = B % L
    full = B - count
    few, made = np.empty(inputs * LANES, values.dtype), np.empty(outputs * LANES, values.dtype)
    for t in range(np.uint64(start), np.uint64(end)):
        source, target = t * np.uint64(rows) * B, t * np.uint64(outputs) * B
        for first in range(none, full, L):
            if inputs < PROJECT_COPIED:
                multiply(packed, bias, outputs, inputs, values, source + first, B, out, target + first, B)
                continue
            for i in range(np.uint64(inputs)):
                store(few, i * L, load(values, source + first + i * B))
            multiply(packed, bias, outputs, inputs, few, none, L, out, target + first, B)
        if count:
            for i in range(np.uint64(inputs)):
                store(few, i * L, load_some(values, source + full + i * B, count))
            multiply(packed, bias, outputs, inputs, few, none, L, made, none, L)
            for i in range(np.uint64(outputs)):
                store_some(out, target + full + i * B, count, load(made, i * L))
    restore_denormals(former)


@compiled()
def _by_outputs(
    task, values, weight, bias, out, steps, rows, inputs, outputs, transposed, panels, spans, cuts
):
    """One task: a span of the steps, by the outputs of some panels."""
    span, cut, across = task // cuts, task % cuts, PANEL * lanes_of(values.itemsize)
    first = panels * cut // cuts * across
    project_by_outputs(
        values, weight, bias, out, rows, inputs, outputs, transposed, steps * span // spans,
        steps * (span + 1) // spans, first, min(outputs, panels * (cut + 1) // cuts * across) - first,
    )  # fmt: skip


@tasks_of
@compiled()
def _by_terms(task, tasks, values, weight, bias, out, steps, rows, inputs, outputs, batch):
    """One task: a span of the steps, with terms as lanes."""
    start, end = steps * task // tasks, steps * (task + 1) // tasks
    project_by_terms(values, weight, bias, out, rows, inputs, outputs, batch, start, end)


_all_by_outputs, _all_by_samples = tasks_of(_by_outputs), tasks_of(_project_by_samples)


@compiled()
def _shift_of(bias, biased, outputs):
    return bias if biased else np.zeros(outputs, bias.dtype)


@compiled()
def _tasks_of(steps, outputs, inputs, batch):
    return max(1, min(steps * outputs * (inputs + 4) * batch // PROJECT_LEAST, PROJECT_TASKS))


@compiled()
def _project_one(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    shift, across = _shift_of(bias, biased, outputs), PANEL * lanes_of(values.itemsize)
    panels = (outputs + across - 1) // across
    cuts = (panels + PROJECT_PANELS - 1) // PROJECT_PANELS
    tasks = _tasks_of(steps, outputs, inputs, batch)
    spans = (tasks + cuts - 1) // max(1, cuts)
    _all_by_outputs(
        spans * cuts, tasks > 1,
        (values, weight, shift, out, steps, rows, inputs, outputs, transposed, panels, spans, cuts),
    )  # fmt: skip


@compiled()
def _project_lanes(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    tasks, shift = _tasks_of(steps, outputs, inputs, batch), _shift_of(bias, biased, outputs)
    by_output, by_input = (1, outputs) if transposed else (inputs, 1)
    packed = pack(weight, 0, by_output, by_input, outputs, inputs)
    _all_by_samples(
        tasks, tasks > 1, (tasks, values, packed, shift, out, steps, rows, inputs, outputs, batch)
    )


@compiled()
def _project_some(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    # A task reads the matrix once for every few panels of terms.
    most, shift = (
        steps * batch // (PANELS * PANEL * lanes_of(values.itemsize)),
        _shift_of(bias, biased, outputs),
    )
    tasks = max(1, min(most, _tasks_of(steps, outputs, inputs, batch)))
    upright = weight
    if transposed:
        upright = np.empty(outputs * inputs, weight.dtype)
        lanes_as_rows(weight, outputs, outputs, inputs, upright, np.uint64(0), inputs)
    _by_terms(tasks, tasks > 1, (tasks, values, upright, shift, out, steps, rows, inputs, outputs, batch))


def _project_launch(s):
    shape = one_thread_per(s["steps"] * s["outputs"] * s["batch"])
    return shape._replace(grid=(min(shape.grid[0], BLOCKS), 1, 1))


@kernel(_project_launch)
def sequence_project(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    if batch == 1:
        by = _project_one
    else:
        by = _project_lanes if _is_by_samples(inputs, outputs, batch) else _project_some
    by(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased)


#: Blocks at most, of which each copies the matrix.
BLOCKS = 1024


# ---- sequence_weight_gradient ----

#: Columns, or entries, of a weight up to which sums by samples are faster, where samples fill the lanes
#: (measured).
WEIGHT_GRADIENT_FEW, WEIGHT_GRADIENT_SMALL = 24, 1024


#: The side of a block's tile, as in the text.
WEIGHT_GRADIENT_TILE = 32


#: Multiply-adds that are worth a task, how many tasks there are where there is so much work, and bytes of a
#: task's sums, at most, so that they stay in the second cache.
WEIGHT_GRADIENT_LEAST, WEIGHT_GRADIENT_TASKS, WEIGHT_GRADIENT_BYTES = 1 << 22, 8, 1 << 17


#: Multiply-adds for which sleeping threads are woken.
WORTH_THREADS = 1 << 23


def _summing(gradient):
    """The twin where a task's sums are by `gradient`."""

    @compiled()
    def sums_of(task, delta, values, initial, weights, biases, shifted, reverse, cuts, *sizes):
        """The sums of one task: over the steps of a part, by the rows of some panels."""
        steps, delta_rows, first, rows, value_rows, columns, batch, parts = sizes
        part, cut = task // cuts, task % cuts
        start, end = steps * part // parts, steps * (part + 1) // parts
        across = PANEL * lanes_of(delta.itemsize)
        panels = (rows + across - 1) // across
        top = panels * cut // cuts * across
        count = min(rows, panels * (cut + 1) // cuts * across) - top
        former = flush_denormals()
        products = OuterProducts(steps, delta_rows, first + top, count, value_rows, columns, batch)
        gradient(
            delta, values, initial, weights, biases, products, shifted, reverse, start, end,
            part * rows + top,
        )  # fmt: skip
        restore_denormals(former)

    all_sums = tasks_of(sums_of)

    @compiled(rounds=2)
    def sums(delta, values, initial, weights, biases, sizes, shifted, reverse):
        # Tasks are parts, and panels of their rows; a sum depends on the parts alone.
        steps, _, _, rows, _, columns, batch, parts = sizes
        across = PANEL * lanes_of(delta.itemsize)
        panels, work = (rows + across - 1) // across, steps * batch * rows * (columns + 1)
        cuts = max(
            min(panels, rows * columns * delta.itemsize // WEIGHT_GRADIENT_BYTES),
            min(panels, work // (parts * WEIGHT_GRADIENT_LEAST), WEIGHT_GRADIENT_TASKS // parts),
            1,
        )
        tasks = parts * cuts
        all_sums(
            tasks, tasks > 1 and work >= WORTH_THREADS,
            # Flat, since a parallel loop takes no tuple inside of another.
            (delta, values, initial, weights, biases, shifted, reverse, cuts, *sizes),
        )  # fmt: skip

    return sums


_by_rows, _weight_gradient_by_samples = _summing(gradient_by_rows), _summing(gradient_by_samples)


def _weight_gradient_launch(s):
    blocks = s["parts"] * tiles(s["rows"], s["columns"])
    return LaunchShape((min(blocks, MAXIMAL_GRID), 1, 1), (256, 1, 1))


@kernel(_weight_gradient_launch)
def sequence_weight_gradient(
    delta, values, initial, weights, biases, steps, delta_rows, first, rows, value_rows, columns, batch,
    parts, shifted, reverse,
):  # fmt: skip
    few = columns <= WEIGHT_GRADIENT_FEW or rows * columns <= WEIGHT_GRADIENT_SMALL
    by = _weight_gradient_by_samples if few and batch > 0 and batch % LANES == 0 else _by_rows
    sizes = steps, delta_rows, first, rows, value_rows, columns, batch, parts
    by(delta, values, initial, weights, biases, sizes, shifted, reverse)


def tiles(rows, columns):
    """The tiles of a weight's gradient, beside which its bias's is a column: a block has one of a part."""
    return -(-rows // WEIGHT_GRADIENT_TILE) * -(-(columns + 1) // WEIGHT_GRADIENT_TILE)


# ---- sequence_gradients ----

#: The side of a thread's tile, pieces in shared memory and threads of a block, as in the text; a piece's
#: bytes.
GRADIENTS_TILE, STAGES, THREADS, PIECE_BYTES = 4, 3, 512, 16 * 1024


def padded(count):
    """The multiple of GRADIENTS_TILE that holds `count`."""
    return -(-count // GRADIENTS_TILE) * GRADIENTS_TILE


def fits(delta_rows, columns, itemsize):
    """Whether the threads of a block hold all sums, of so many columns beside that of ones, and a piece a few
    steps and samples."""
    rows, columns = padded(delta_rows), padded(columns + 1)
    return rows * columns <= THREADS * GRADIENTS_TILE**2 and 4 * (rows + columns) * itemsize <= PIECE_BYTES


def staged_count(delta_rows, columns, itemsize):
    """Steps and samples of a piece."""
    return PIECE_BYTES // ((padded(delta_rows) + padded(columns + 1)) * itemsize)


def _gradients_launch(s):
    rows, columns, itemsize = padded(s["delta_rows"]), padded(s["hidden"] + s["inputs"] + 1), s["itemsize"]
    tiles = -(-rows * columns // (GRADIENTS_TILE**2 * 32)) * 32
    staged = STAGES * s["staged"] * (rows + columns) * itemsize
    turns = max(1, THREADS // tiles)
    shared = max(staged, turns * rows * columns * itemsize)
    return LaunchShape((min(s["parts"], MAXIMAL_GRID), 1, 1), (turns * tiles, 1, 1), shared)


@kernel(_gradients_launch)
@compiled()
def sequence_gradients(
    delta, state, initial, values, partial, steps, delta_rows, state_rows, hidden, value_rows, inputs, batch,
    parts, staged, reverse,
):  # fmt: skip
    rows, columns = (delta_rows + 3) // 4 * 4, (hidden + inputs + 4) // 4 * 4
    count = steps * batch
    pieces = (count + staged - 1) // staged
    partial[:] = 0
    for part in range(parts):
        sums = partial[part * rows * columns : (part + 1) * rows * columns].reshape(rows, columns)
        for q in range(pieces * part // parts * staged, min(count, pieces * (part + 1) // parts * staged)):
            t, b = q // batch, q % batch
            is_first = t == (steps - 1 if reverse else 0)
            before = initial if is_first else state
            place = 0 if is_first else (t + 1 if reverse else t - 1) * state_rows * batch
            for i in range(delta_rows):
                value = delta[(t * delta_rows + i) * batch + b]
                for k in range(hidden):
                    sums[i, k] += value * before[place + k * batch + b]
                for k in range(inputs):
                    sums[i, hidden + k] += value * values[(t * value_rows + k) * batch + b]
                sums[i, hidden + inputs] += value


# ---- sequence_gradient_sums ----


def _gradient_sums_launch(s):
    H = s["hidden"]
    items = s["gates"] * H * (s["inputs"] + 1) + s["recurrent"] * H * (H + 1)
    return LaunchShape((min(-(-items // 32), MAXIMAL_GRID), 1, 1), (256, 1, 1))


@kernel(_gradient_sums_launch)
@compiled()
def sequence_gradient_sums(
    partial, sources, weight_ih, weight_hh, bias_ih, bias_hh, parts, rows, columns, gates, recurrent, hidden,
    inputs, biased,
):  # fmt: skip
    total = partial.reshape(parts, rows, columns).sum(0)
    for row in range(gates * hidden):
        for column in range(inputs):
            weight_ih[row * inputs + column] = total[row, hidden + column]
        if biased:
            bias_ih[row] = total[row, hidden + inputs]
    for row in range(recurrent * hidden):
        source = sources[row // hidden] * hidden + row % hidden
        for column in range(hidden):
            weight_hh[row * hidden + column] = total[source, column]
        if biased:
            bias_hh[row] = total[source, hidden + inputs]
