"""Weights in the order in which the products of `lane_products` and `row_products` read them."""

import numpy as np

from bppsa_cupy.raw_kernels.twins.products.lane_products import ROWS
from bppsa_cupy.raw_kernels.twins.products.panels import lanes_as_rows
from bppsa_cupy.raw_kernels.twins.products.row_products import whole_vectors
from bppsa_cupy.raw_kernels.twins.scans.batched import load_some, store_some
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, store
from bppsa_cupy.system.compiled import compiled


@compiled()
def _place(matrix, source, row_stride, column_stride, rows, columns, packed, target, pitch):
    """packed[target + k pitch + r] = matrix[source + r row_stride + k column_stride] for r < rows ≤ LANES and
    k < columns; one of the strides is 1."""
    if column_stride == 1:
        lanes_as_rows(matrix[source:], row_stride, columns, rows, packed, np.uint64(target), pitch)
        return
    count, place, start = np.uint64(rows), np.uint64(source), np.uint64(target)
    for _ in range(columns):
        if rows == LANES:
            store(packed, start, load(matrix, place))
        else:
            store_some(packed, start, count, load_some(matrix, place, count))
        place, start = place + np.uint64(column_stride), start + np.uint64(pitch)


@compiled()
def pack(matrix, first, row_stride, column_stride, rows, columns):
    """A matrix as `lane_products.multiply` takes it: matrix[first + r row_stride + k column_stride] in tiles
    of rows; one of the strides is 1."""
    packed = np.empty(rows * columns, matrix.dtype)
    pack_parts(matrix, first, row_stride, column_stride, 1, 0, 0, rows, columns, packed)
    return packed


@compiled()
def pack_parts(matrix, first, row_stride, column_stride, parts, apart, begin, end, columns, packed):
    """Set `packed` to rows begin … end - 1 of `parts` matrices, one below the other, as
    `lane_products.multiply` takes them: matrix[first + p apart + r row_stride + k column_stride]; one of the
    strides is 1."""
    height = end - begin
    rows = parts * height
    row = 0
    while row < rows:
        tile = ROWS if row + ROWS <= rows else 2 if row + 2 <= rows else 1
        there = 0
        while there < tile:
            part, within = (row + there) // height, (row + there) % height
            count = min(tile - there, height - within)
            source = first + part * apart + (begin + within) * row_stride
            _place(
                matrix, source, row_stride, column_stride, count, columns, packed, row * columns + there, tile
            )
            there += count
        row += tile


@compiled()
def pack_rows(
    matrix, first, row_stride, column_stride, parts, apart, begin, end, columns, packed, group_size
):
    """Set `packed` to rows begin … end - 1 of `parts` matrices, matrix[first + p apart + r row_stride +
    k column_stride], as `row_products.multiply_rows` takes them: each part's in whole vectors, zeros after
    them, `group_size` vectors side by side; one of the strides is 1."""
    width = whole_vectors(end - begin) // LANES
    vectors = parts * width
    if (end - begin) % LANES:
        packed[: vectors * columns * LANES] = 0
    for vector in range(vectors):
        group = vector // group_size * group_size
        pitch = min(group_size, vectors - group) * LANES
        start = group * columns * LANES + (vector - group) * LANES
        row = begin + vector % width * LANES
        source = first + vector // width * apart + row * row_stride
        count = min(LANES, end - row)
        _place(matrix, source, row_stride, column_stride, count, columns, packed, start, pitch)
