"""Partial sums of all gradients by the weights of one direction of a recurrent layer."""

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel
from bppsa_cupy.system.compiled import compiled

#: The side of a thread's tile, pieces in shared memory and threads of a block, as in the text; a piece's
#: bytes.
TILE, STAGES, THREADS, PIECE_BYTES = 4, 3, 512, 16 * 1024


def padded(count):
    """The multiple of TILE that holds `count`."""
    return -(-count // TILE) * TILE


def fits(delta_rows, columns, itemsize):
    """Whether the threads of a block hold all sums, of so many columns beside that of ones, and a piece a few
    steps and samples."""
    rows, columns = padded(delta_rows), padded(columns + 1)
    return rows * columns <= THREADS * TILE**2 and 4 * (rows + columns) * itemsize <= PIECE_BYTES


def staged_count(delta_rows, columns, itemsize):
    """Steps and samples of a piece."""
    return PIECE_BYTES // ((padded(delta_rows) + padded(columns + 1)) * itemsize)


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
        own = partial[part * rows * columns : (part + 1) * rows * columns].reshape(rows, columns)
        for q in range(pieces * part // parts * staged, min(count, pieces * (part + 1) // parts * staged)):
            t, b = q // batch, q % batch
            is_first = t == (steps - 1 if reverse else 0)
            before = initial if is_first else state
            place = 0 if is_first else (t + 1 if reverse else t - 1) * state_rows * batch
            for i in range(delta_rows):
                value = delta[(t * delta_rows + i) * batch + b]
                for k in range(hidden):
                    own[i, k] += value * before[place + k * batch + b]
                for k in range(inputs):
                    own[i, hidden + k] += value * values[(t * value_rows + k) * batch + b]
                own[i, hidden + inputs] += value


def _launch(s):
    rows, columns, itemsize = padded(s["delta_rows"]), padded(s["hidden"] + s["inputs"] + 1), s["itemsize"]
    tiles = -(-rows * columns // (TILE**2 * 32)) * 32
    staged = STAGES * s["staged"] * (rows + columns) * itemsize
    threads = tiles * max(1, THREADS // tiles)
    shared = max(staged, rows * columns * itemsize if threads > tiles else 0)
    return LaunchShape((min(s["parts"], MAXIMAL_GRID), 1, 1), (threads, 1, 1), shared)


KERNEL = kernel(sequence_gradients, _launch)
