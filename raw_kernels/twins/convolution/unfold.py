"""im2col and col2im on the host: the patches of some output rows as a matrix, and back.

A patch matrix is (channels * kernel_height * kernel_width, rows * out_width), C order; `rows` output
rows from `first_row` on, counted over samples: row r is row r % out_height of sample r // out_height.
"""

import numpy as np

from bppsa_cupy.system.compiled import compiled

#: Workers that convolutions are cut into, at most: a fixed number, so that sums over their parts, and
#: with them all results, are the same on any number of threads.
WORKERS = 16

#: Tiles of output rows below which a convolution is cut by channels instead: each cut reads the weights of
#: its own channels alone, where each tile reads all of them.
FEW_TILES = 8

#: Columns a matrix product has at least, so that reading the weights is not most of its work; twice as
#: many where it also adds to sums of the weights' size.
LEAST_COLUMNS = 128


@compiled()
def inside(inputs, outputs, offset, stride):
    """The first output and the end of those whose input, output * stride + offset, is in the plane."""
    first = 0 if offset >= 0 else (-offset + stride - 1) // stride
    end = 0 if offset >= inputs else (inputs - 1 - offset) // stride + 1
    first = min(first, outputs)
    return first, max(first, min(end, outputs))


@compiled()
def unfold(x, patches, first_row, rows, first_channel, channels, in_channels, window):
    """Write the patch matrix of `channels` channels from `first_channel` on."""
    position = np.uint64(0)
    one = np.uint64(1)
    step = np.uint64(window.stride_x)
    for channel in range(first_channel, first_channel + channels):
        for i in range(window.kernel_height):
            down = i * window.dilation_y - window.padding_y
            for j in range(window.kernel_width):
                offset = j * window.dilation_x - window.padding_x
                first, end = inside(window.in_width, window.out_width, offset, window.stride_x)
                for row in range(first_row, first_row + rows):
                    sample = row // window.out_height
                    y = (row - sample * window.out_height) * window.stride_y + down
                    if y < 0 or y >= window.in_height:
                        for _ in range(window.out_width):
                            patches[position] = 0
                            position += one
                        continue
                    for _ in range(first):
                        patches[position] = 0
                        position += one
                    source = np.uint64(
                        ((sample * in_channels + channel) * window.in_height + y) * window.in_width
                        + first * window.stride_x
                        + offset
                    )
                    length = np.uint64(end - first)
                    if window.stride_x == 1:
                        for k in range(length):
                            patches[position + k] = x[source + k]
                    else:
                        for k in range(length):
                            patches[position + k] = x[source + k * step]
                    position += length
                    for _ in range(end, window.out_width):
                        patches[position] = 0
                        position += one


@compiled()
def fold(patches, x, first_row, rows, first_channel, channels, in_channels, window):
    """Add every patch element to the input position it was taken from: the transpose of `unfold`."""
    position = np.uint64(0)
    step = np.uint64(window.stride_x)
    for channel in range(first_channel, first_channel + channels):
        for i in range(window.kernel_height):
            down = i * window.dilation_y - window.padding_y
            for j in range(window.kernel_width):
                offset = j * window.dilation_x - window.padding_x
                first, end = inside(window.in_width, window.out_width, offset, window.stride_x)
                for row in range(first_row, first_row + rows):
                    sample = row // window.out_height
                    y = (row - sample * window.out_height) * window.stride_y + down
                    if y >= 0 and y < window.in_height:
                        target = np.uint64(
                            ((sample * in_channels + channel) * window.in_height + y) * window.in_width
                            + first * window.stride_x
                            + offset
                        )
                        source = position + np.uint64(first)
                        length = np.uint64(end - first)
                        if window.stride_x == 1:
                            for k in range(length):
                                x[target + k] += patches[source + k]
                        else:
                            for k in range(length):
                                x[target + k * step] += patches[source + k]
                    position += np.uint64(window.out_width)


@compiled()
def gather_rows(x, block, first_row, rows, first_channel, channels, all_channels, height, width):
    """Copy `rows` rows of `channels` channels of x (batch, all_channels, height, width) to a matrix
    (channels, rows * width)."""
    position = np.uint64(0)
    for channel in range(first_channel, first_channel + channels):
        for row in range(first_row, first_row + rows):
            sample = row // height
            source = np.uint64(((sample * all_channels + channel) * height + row - sample * height) * width)
            for k in range(np.uint64(width)):
                block[position + k] = x[source + k]
            position += np.uint64(width)


@compiled()
def rows_per_tile(depth, out_width, rows, itemsize, columns):
    """Output rows whose patch matrix of `depth` rows stays near 256 KiB (half of a small L2 cache), but
    has `columns` columns."""
    fitting = 262144 // max(1, depth * out_width * itemsize)
    return max(1, min(rows, max(fitting, (columns + out_width - 1) // out_width)))


@compiled()
def channels_per_part(channels, rows_each, least_rows):
    """Channels of one part, of at most WORKERS: each has `rows_each` rows of a matrix, a part at least
    `least_rows` where there are so many."""
    even = (channels + WORKERS - 1) // WORKERS
    return max(1, min(channels, max(even, (least_rows + rows_each - 1) // rows_each)))
