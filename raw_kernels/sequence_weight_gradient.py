"""Partial sums of a weight's and a bias's gradient over steps and samples."""

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel
from bppsa_cupy.raw_kernels.twins.products.gradient_by_rows import OuterProducts, gradient_by_rows
from bppsa_cupy.raw_kernels.twins.products.gradient_by_samples import gradient_by_samples
from bppsa_cupy.raw_kernels.twins.products.panels import PANEL
from bppsa_cupy.raw_kernels.twins.products.tiles import lanes_of
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled

#: Columns, or entries, of a weight up to which sums by samples are faster, where samples fill the lanes
#: (measured).
FEW, SMALL = 24, 1024

#: The side of a block's tile, as in the text.
TILE = 32

#: Multiply-adds that are worth a task, how many tasks there are where there is so much work, and panels of a
#: task's rows, at most, so that what it adds to stays in the second cache.
LEAST, TASKS, PANELS = 1 << 22, 8, 4

#: Multiply-adds for which sleeping threads are woken.
WORTH_THREADS = 1 << 23


def _summing(gradient):
    """The twin where a task's sums are by `gradient`."""

    @compiled()
    def sums_of(task, delta, values, initial, weights, biases, shifted, reverse, cuts, *sizes):
        """The sums of one task: over the steps of a part, by the rows of some panels of a band."""
        steps, delta_rows, first, rows, bands, sets, value_rows, columns, batch, parts = sizes
        part, band, cut = task // (bands * cuts), task // cuts % bands, task % cuts
        start, end = steps * part // parts, steps * (part + 1) // parts
        height, across = rows // bands, PANEL * lanes_of(delta.itemsize)
        panels = (height + across - 1) // across
        inner = panels * cut // cuts * across
        count = min(height, panels * (cut + 1) // cuts * across) - inner
        top, taken = band * height + inner, band % sets * columns * batch
        former = flush_denormals()
        products = OuterProducts(steps, delta_rows, first + top, count, value_rows, columns, batch)
        gradient(
            delta, values[taken:], initial[taken if shifted else 0 :], weights, biases, products, shifted,
            reverse, start, end, part * rows + top,
        )  # fmt: skip
        restore_denormals(former)

    all_sums = tasks_of(sums_of)

    @compiled(rounds=2)
    def sums(delta, values, initial, weights, biases, sizes, shifted, reverse):
        # Tasks are parts, bands and panels of their rows; a sum depends on the parts alone.
        steps, _, _, rows, bands, _, _, columns, batch, parts = sizes
        height, across = rows // bands, PANEL * lanes_of(delta.itemsize)
        panels, work = (height + across - 1) // across, steps * batch * height * (columns + 1)
        cuts = max(
            (panels + PANELS - 1) // PANELS, min(panels, work // (parts * LEAST), TASKS // (parts * bands)), 1
        )
        tasks = parts * bands * cuts
        all_sums(
            tasks, tasks > 1 and work * bands >= WORTH_THREADS,
            # Flat, since a parallel loop takes no tuple inside of another.
            (delta, values, initial, weights, biases, shifted, reverse, cuts, *sizes),
        )  # fmt: skip

    return sums


_by_rows, _by_samples = _summing(gradient_by_rows), _summing(gradient_by_samples)


def sequence_weight_gradient(
    delta, values, initial, weights, biases, steps, delta_rows, first, rows, bands, sets, value_rows, columns,
    batch, parts, shifted, reverse,
):  # fmt: skip
    few = columns <= FEW or rows // bands * columns <= SMALL
    by = _by_samples if few and batch > 0 and batch % LANES == 0 else _by_rows
    sizes = steps, delta_rows, first, rows, bands, sets, value_rows, columns, batch, parts
    by(delta, values, initial, weights, biases, sizes, shifted, reverse)


def tiles(rows, columns):
    """The tiles of a weight's gradient, beside which its bias's is a column: a block has one of a part."""
    return -(-rows // TILE) * -(-(columns + 1) // TILE)


def _launch(s):
    blocks = s["parts"] * s["bands"] * tiles(s["rows"] // s["bands"], s["columns"])
    return LaunchShape((min(blocks, MAXIMAL_GRID), 1, 1), (256, 1, 1))


KERNEL = kernel(sequence_weight_gradient, _launch)
