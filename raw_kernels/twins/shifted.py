"""Convolution of stride 1 on the host, as sums of shifted planes.

A plane whose rows are `width` apart shows what tap (i, j) sees of it at position p at position
p + (i * dilation_y * width + j * dilation_x): a constant shift. So an output plane, with its rows as far
apart, is a sum of shifted planes, each times a weight, in long loops over consecutive memory; the few
positions between the rows are computed for nothing. Against patches and a matrix product (`unfold`), this
needs no copy of the input a tap, and stays fast where there are few channels.
"""

import numpy as np

from bppsa_cupy.raw_kernels.twins.lanes import LANES
from bppsa_cupy.system.compiled import compiled

#: Rows (channels) that one pass over shifted planes makes, and the planes it adds at once.
ROWS, PLANES = 4, 6

#: Positions of one pass: its rows and planes stay in the first cache.
CHUNK = 1024

#: Positions a step of one weight's gradient, whose LANES partial sums are added at the end.
STEP = 64


@compiled()
def shifts_win(height, width, columns, planes):
    """Whether sums of shifted planes beat patches for so many output planes: they want long planes, or
    planes so few that making patches is much of the other way's work."""
    length = (height - 1) * columns + width
    return length >= 512 or (length >= 64 and planes <= 32)


@compiled()
def padded_length(height, width, columns, multiple):
    """Positions from the first element of a plane to its last, up to a multiple."""
    return ((height - 1) * columns + width + multiple - 1) // multiple * multiple


@compiled()
def pack(x, first, channels, height, width, packed, plane, rows, columns, top, left):
    """Copy planes (channels, height, width), from position `first` of x on, into zeroed ones of (rows,
    columns), `plane` positions apart, `top` rows down and `left` columns right. What falls outside is
    left out."""
    start, end = max(0, -left), min(width, columns - left)
    for channel in range(channels):
        for row in range(max(0, -top), min(height, rows - top)):
            source = np.uint64(first + (channel * height + row) * width + start)
            target = np.uint64(channel * plane + (row + top) * columns + left + start)
            for k in range(np.uint64(max(0, end - start))):
                packed[target + k] = x[source + k]


@compiled()
def tap_shifts(channels, plane, columns, kernel_height, kernel_width, dilation_y, dilation_x, shifts):
    """Write where in packed planes each (channel, tap) starts."""
    k = 0
    for channel in range(channels):
        for i in range(kernel_height):
            for j in range(kernel_width):
                shifts[k] = channel * plane + i * dilation_y * columns + j * dilation_x
                k += 1


@compiled()
def _add_planes(sums, stride, start, end, weight, rows, k, packed, shifts):
    w, one = np.uint64(k), np.uint64(1)
    a, b, c, d = rows[0] + w, rows[1] + w, rows[2] + w, rows[3] + w
    two, three, four, five = one + one, np.uint64(3), np.uint64(4), np.uint64(5)
    a0, a1, a2, a3, a4, a5 = (
        weight[a], weight[a + one], weight[a + two], weight[a + three], weight[a + four], weight[a + five]
    )  # fmt: skip
    b0, b1, b2, b3, b4, b5 = (
        weight[b], weight[b + one], weight[b + two], weight[b + three], weight[b + four], weight[b + five]
    )  # fmt: skip
    c0, c1, c2, c3, c4, c5 = (
        weight[c], weight[c + one], weight[c + two], weight[c + three], weight[c + four], weight[c + five]
    )  # fmt: skip
    d0, d1, d2, d3, d4, d5 = (
        weight[d], weight[d + one], weight[d + two], weight[d + three], weight[d + four], weight[d + five]
    )  # fmt: skip
    s0, s1, s2 = start + shifts[w], start + shifts[w + one], start + shifts[w + two]
    s3, s4, s5 = start + shifts[w + three], start + shifts[w + four], start + shifts[w + five]
    first, second = start, start + stride
    third, fourth = second + stride, second + stride + stride
    for p in range(end - start):
        x0, x1, x2 = packed[s0 + p], packed[s1 + p], packed[s2 + p]
        x3, x4, x5 = packed[s3 + p], packed[s4 + p], packed[s5 + p]
        sums[first + p] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3 + a4 * x4 + a5 * x5
        sums[second + p] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3 + b4 * x4 + b5 * x5
        sums[third + p] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3 + c4 * x4 + c5 * x5
        sums[fourth + p] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3 + d4 * x4 + d5 * x5


@compiled()
def _add_plane(sums, stride, start, end, weight, rows, k, packed, shifts):
    w = np.uint64(k)
    a, b, c, d = weight[rows[0] + w], weight[rows[1] + w], weight[rows[2] + w], weight[rows[3] + w]
    s, first, second = start + shifts[w], start, start + stride
    third, fourth = second + stride, second + stride + stride
    for p in range(end - start):
        x = packed[s + p]
        sums[first + p] += a * x
        sums[second + p] += b * x
        sums[third + p] += c * x
        sums[fourth + p] += d * x


@compiled()
def correlate(packed, shifts, weight, depth, bias, output, first, features, height, width, columns):
    """Write planes (features, height, width) to `output` from `first` on: feature f is bias[f] plus the
    sum over k < depth of weight[f * depth + k] times the packed planes shifted by shifts[k].

    columns  how far apart the packed planes' rows are; up to LANES positions after the last plane are
             read, for positions that are thrown away; bias may be empty
    """
    length = padded_length(height, width, columns, LANES)
    stride = np.uint64(length)
    sums = np.empty(ROWS * length, packed.dtype)
    rows = np.empty(ROWS, np.uint64)
    for feature in range(0, features, ROWS):
        count = min(ROWS, features - feature)
        for r in range(ROWS):
            # Rows past the last feature repeat it, and are thrown away.
            rows[r] = np.uint64((feature + min(r, count - 1)) * depth)
            shift = bias[feature + min(r, count - 1)] if bias.size else packed.dtype.type(0)
            sums[r * length : (r + 1) * length] = shift
        for start in range(0, length, CHUNK):
            left, right = np.uint64(start), np.uint64(min(start + CHUNK, length))
            full = depth - depth % PLANES
            for k in range(0, full, PLANES):
                _add_planes(sums, stride, left, right, weight, rows, k, packed, shifts)
            for k in range(full, depth):
                _add_plane(sums, stride, left, right, weight, rows, k, packed, shifts)
        for r in range(count):
            for y in range(height):
                target = np.uint64(first + ((feature + r) * height + y) * width)
                source = np.uint64(r * length + y * columns)
                for x in range(np.uint64(width)):
                    output[target + x] = sums[source + x]


@compiled()
def _add_block(sums, first, gradient, rows, packed, shifts, length):
    g0, g1, g2, g3 = rows[0], rows[1], rows[2], rows[3]
    x0, x1, x2, x3 = shifts[0], shifts[1], shifts[2], shifts[3]
    l1, l2, l3 = np.uint64(LANES), np.uint64(2 * LANES), np.uint64(3 * LANES)
    row = np.uint64(4 * LANES)
    for p in range(np.uint64(0), length, np.uint64(STEP)):
        for lane in range(np.uint64(LANES)):
            a = p + lane
            b, c, d = a + l1, a + l2, a + l3
            xa, xb, xc, xd = packed[x0 + a], packed[x0 + b], packed[x0 + c], packed[x0 + d]
            ya, yb, yc, yd = packed[x1 + a], packed[x1 + b], packed[x1 + c], packed[x1 + d]
            za, zb, zc, zd = packed[x2 + a], packed[x2 + b], packed[x2 + c], packed[x2 + d]
            wa, wb, wc, wd = packed[x3 + a], packed[x3 + b], packed[x3 + c], packed[x3 + d]
            q = first + lane
            ga, gb, gc, gd = gradient[g0 + a], gradient[g0 + b], gradient[g0 + c], gradient[g0 + d]
            sums[q] += ga * xa + gb * xb + gc * xc + gd * xd
            sums[q + l1] += ga * ya + gb * yb + gc * yc + gd * yd
            sums[q + l2] += ga * za + gb * zb + gc * zc + gd * zd
            sums[q + l3] += ga * wa + gb * wb + gc * wc + gd * wd
            q += row
            ga, gb, gc, gd = gradient[g1 + a], gradient[g1 + b], gradient[g1 + c], gradient[g1 + d]
            sums[q] += ga * xa + gb * xb + gc * xc + gd * xd
            sums[q + l1] += ga * ya + gb * yb + gc * yc + gd * yd
            sums[q + l2] += ga * za + gb * zb + gc * zc + gd * zd
            sums[q + l3] += ga * wa + gb * wb + gc * wc + gd * wd
            q += row
            ga, gb, gc, gd = gradient[g2 + a], gradient[g2 + b], gradient[g2 + c], gradient[g2 + d]
            sums[q] += ga * xa + gb * xb + gc * xc + gd * xd
            sums[q + l1] += ga * ya + gb * yb + gc * yc + gd * yd
            sums[q + l2] += ga * za + gb * zb + gc * zc + gd * zd
            sums[q + l3] += ga * wa + gb * wb + gc * wc + gd * wd
            q += row
            ga, gb, gc, gd = gradient[g3 + a], gradient[g3 + b], gradient[g3 + c], gradient[g3 + d]
            sums[q] += ga * xa + gb * xb + gc * xc + gd * xd
            sums[q + l1] += ga * ya + gb * yb + gc * yc + gd * yd
            sums[q + l2] += ga * za + gb * zb + gc * zc + gd * zd
            sums[q + l3] += ga * wa + gb * wb + gc * wc + gd * wd


@compiled()
def add_products(sums, gradient, features, packed, shifts, terms, length):
    """Add to `sums` the products of every gradient plane with every shifted plane, a lane apart.

    sums      (blocks of 4 planes, blocks of 4 terms, 4, 4, LANES)
    gradient  planes `length` positions apart, zero between their rows and up to a multiple of 4 planes
    packed    readable `length` positions from each of `shifts` on
    shifts    (terms), zero up to a multiple of 4
    length    a multiple of STEP
    """
    rows = np.empty(4, np.uint64)
    block = np.uint64(0)
    for feature in range(0, features, 4):
        for r in range(4):
            rows[r] = np.uint64((feature + r) * length)
        for term in range(0, terms, 4):
            _add_block(sums, block, gradient, rows, packed, shifts[term : term + 4], np.uint64(length))
            block += np.uint64(16 * LANES)


@compiled()
def group_sums(features, terms):
    """Elements of `sums` for so many planes and terms."""
    return ((features + 3) // 4) * ((terms + 3) // 4) * 16 * LANES


@compiled()
def lane_sum(sums, feature, term, terms):
    """One product of `add_products`, its lanes added in order."""
    block = (feature // 4) * ((terms + 3) // 4) + term // 4
    first = (block * 16 + feature % 4 * 4 + term % 4) * LANES
    total = sums[first]
    for lane in range(first + 1, first + LANES):
        total += sums[lane]
    return total
