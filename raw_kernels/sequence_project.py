"""One matrix times the values of every step and sample."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.products.lane_products import multiply
from bppsa_cupy.raw_kernels.twins.products.packing import pack
from bppsa_cupy.raw_kernels.twins.products.panels import PANEL, lanes_as_rows
from bppsa_cupy.raw_kernels.twins.products.project_by_outputs import project_by_outputs
from bppsa_cupy.raw_kernels.twins.products.project_by_terms import project_by_terms
from bppsa_cupy.raw_kernels.twins.products.tiles import lanes_of
from bppsa_cupy.raw_kernels.twins.scans.batched import load_some, store_some
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, store
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled

#: Multiply-adds that are worth a task, and how many tasks there are where there is so much work.
LEAST, TASKS = 1 << 21, 32

#: Entries of a matrix up to which it is read anew for the samples of each step, where they fill the lanes; up
#: to so many inputs it also is where they fill two fifths of them (measured).
SMALL, FEW = 1 << 18, 24

#: Panels of outputs of a task, at most.
PANELS = 4


def _is_by_samples(inputs, outputs, batch):
    filled = (batch + LANES - 1) // LANES * LANES
    return inputs * outputs <= SMALL and (batch == filled or (inputs <= FEW and 5 * batch >= 2 * filled))


@compiled()
def _by_samples(task, tasks, values, packed, bias, out, steps, rows, inputs, outputs, batch):
    """One task: a span of the steps, with samples as lanes."""
    start, end = steps * task // tasks, steps * (task + 1) // tasks
    former = flush_denormals()
    B, L, none = np.uint64(batch), np.uint64(LANES), np.uint64(0)
    count = B % L
    whole = B - count
    few, made = np.empty(inputs * LANES, values.dtype), np.empty(outputs * LANES, values.dtype)
    for t in range(np.uint64(start), np.uint64(end)):
        source, target = t * np.uint64(rows) * B, t * np.uint64(outputs) * B
        for first in range(none, whole, L):
            multiply(packed, bias, outputs, inputs, values, source + first, B, out, target + first, B)
        if count:
            for i in range(np.uint64(inputs)):
                store(few, i * L, load_some(values, source + whole + i * B, count))
            multiply(packed, bias, outputs, inputs, few, none, L, made, none, L)
            for i in range(np.uint64(outputs)):
                store_some(out, target + whole + i * B, count, load(made, i * L))
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


@compiled()
def _by_terms(task, tasks, values, weight, bias, out, steps, rows, inputs, outputs, batch):
    """One task: a span of the steps, with terms as lanes."""
    start, end = steps * task // tasks, steps * (task + 1) // tasks
    project_by_terms(values, weight, bias, out, rows, inputs, outputs, batch, start, end)


_all_by_outputs, _all_by_samples = tasks_of(_by_outputs), tasks_of(_by_samples)
_all_by_terms = tasks_of(_by_terms)


@compiled()
def _shift_of(bias, biased, outputs):
    return bias if biased else np.zeros(outputs, bias.dtype)


@compiled()
def _tasks_of(steps, outputs, inputs, batch):
    return max(1, min(steps * outputs * (inputs + 4) * batch // LEAST, TASKS))


@compiled()
def _project_one(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    shift, across = _shift_of(bias, biased, outputs), PANEL * lanes_of(values.itemsize)
    panels = (outputs + across - 1) // across
    cuts = (panels + PANELS - 1) // PANELS
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
    tasks, shift = _tasks_of(steps, outputs, inputs, batch), _shift_of(bias, biased, outputs)
    upright = weight
    if transposed:
        upright = np.empty(outputs * inputs, weight.dtype)
        lanes_as_rows(weight, outputs, outputs, inputs, upright, np.uint64(0), inputs)
    _all_by_terms(tasks, tasks > 1, (tasks, values, upright, shift, out, steps, rows, inputs, outputs, batch))


def sequence_project(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased):
    if batch == 1:
        by = _project_one
    else:
        by = _project_lanes if _is_by_samples(inputs, outputs, batch) else _project_some
    by(values, weight, bias, out, steps, rows, inputs, outputs, batch, transposed, biased)


#: Blocks at most, of which each copies the matrix.
BLOCKS = 1024


def _launch(s):
    shape = one_thread_per(s["steps"] * s["outputs"] * s["batch"])
    return shape._replace(grid=(min(shape.grid[0], BLOCKS), 1, 1))


KERNEL = kernel(sequence_project, _launch)
