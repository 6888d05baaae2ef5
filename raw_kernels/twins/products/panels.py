"""Operands of `tiles.add_products` in panels: the vectors of one tile lie side by side, term by term.

A panel is (terms, vectors) of memory, so that what a tile reads of it stays in the first cache whatever the
operand's own layout is.
"""

import numpy as np

from bppsa_cupy.raw_kernels.twins.products.tiles import VECTORS, lanes_of
from bppsa_cupy.raw_kernels.twins.simd.lanes import never_inlined
from bppsa_cupy.raw_kernels.twins.simd.squares import (
    copy_line,
    put_eight,
    put_four,
    put_lines,
    put_square,
    put_two,
    take_square,
)
from bppsa_cupy.raw_kernels.twins.simd.vectors import VECTOR_BYTES
from bppsa_cupy.system.compiled import compiled

#: Vectors of a panel whose vectors are loaded; where single elements are read, one is enough.
PANEL = VECTORS


@compiled()
def aligned(size, like):
    """An array of `size` elements of the dtype of `like`, from the start of a vector on."""
    room = np.empty(size + lanes_of(like.itemsize), like.dtype)
    start = -room.ctypes.data % np.uint64(VECTOR_BYTES) // np.uint64(like.itemsize)
    return room[start : start + np.uint64(size)]


@compiled()
def places_of(vectors, terms, lanes):
    """Where the first term of each vector is, in panels of PANEL vectors and `terms` terms."""
    places = np.empty(vectors, np.uint64)
    for v in range(vectors):
        places[v] = (v // PANEL * terms * PANEL + v % PANEL) * lanes
    return places


@compiled()
def rows_as_lanes(source, place, step, steps, rows, batch, packed, terms, panel, sums):
    """Panels of `panel` vectors: lane r of term t batch + b is source[place + t step + r batch + b].

    Where batch > 1, the sums over the terms are added to `sums` (vectors, lanes). What is in lanes from
    `rows` on is anything; no memory after source's last row is read.
    """
    never_inlined()
    L, one, P = np.uint64(lanes_of(source.itemsize)), np.uint64(1), np.uint64(panel)
    B, R = np.uint64(batch), np.uint64(rows)
    across, squares, zero = P * L, B // L * L, packed.dtype.type(0)
    for t in range(np.uint64(steps)):
        for v in range((R + L - one) // L):
            r = v * L
            here = min(L, R - r)
            first, target = place + t * step + r * B, (v // P * np.uint64(terms) + t * B) * across + v % P * L
            if B > one:
                if here == L and B == np.uint64(2):
                    put_two(source, first, packed, target, across, sums, r)
                elif here == L and B == np.uint64(4):
                    put_four(source, first, packed, target, across, sums, r)
                elif here == L and B == np.uint64(8) and B < L:
                    put_eight(source, first, packed, target, across, sums, r)
                else:
                    for b in range(np.uint64(0), squares, L):
                        put_square(source, first + b, B, here, packed, target + b * across, across, sums, r)
                    if squares < B:
                        put_lines(
                            source, first + squares, B, here, B - squares, packed, target + squares * across,
                            across, sums, r,
                        )  # fmt: skip
            elif here == L:
                copy_line(source, first, None, packed, target, None, zero)
            else:
                copy_line(source, first, here, packed, target, None, zero)


@compiled()
def lanes_as_rows(sums, width, rows, columns, out, target, spacing):
    """out[target + r spacing + k] = sums[k width + r], for `rows` rows and `columns` columns."""
    never_inlined()
    L = np.uint64(lanes_of(sums.itemsize))
    R, K, W, S = np.uint64(rows), np.uint64(columns), np.uint64(width), np.uint64(spacing)
    for r in range(np.uint64(0), R, L):
        for k in range(np.uint64(0), K, L):
            take_square(sums, k * W + r, W, min(L, K - k), min(L, R - r), out, target + r * S + k, S)
