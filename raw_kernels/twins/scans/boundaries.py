"""What the scans over boundaries of chunks share: powers of two, the launch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape
from bppsa_cupy.system.compiled import compiled

#: As the texts have them: threads of a block; pieces of maps in shared memory, and the bytes of one where a
#: column has no more.
THREADS, STAGES, PIECE_BYTES = 256, 4, 8192


@compiled()
def scaled(value, exponent):
    """value times a power of two."""
    return math.ldexp(float(value), exponent)


def launch(s: Mapping[str, Any]) -> LaunchShape:
    """A block a walk: a thread an element to size 20 and for 40; for others THREADS, and pieces of maps."""
    size, itemsize = s["states"] * s["hidden"], s["itemsize"]
    rows = -(-size // 32) * 32
    grid = (min(s["sets"] * s["batch"], MAXIMAL_GRID), 1, 1)
    if size <= 20 or size == 40:
        return LaunchShape(grid, (rows, 1, 1), 2 * rows * itemsize)
    columns = min(PIECE_BYTES // itemsize // size, size)
    columns = size if columns == size else columns - columns % 4 if columns >= 4 else 1
    piece, padded = (-(-count // 4) * 4 for count in (columns * size, size))
    reals = STAGES * piece + (2 + 1 + STAGES) * padded + THREADS
    shared = reals * itemsize + STAGES * padded * 4 + size * 8
    return LaunchShape(grid, (THREADS, 1, 1), shared)
