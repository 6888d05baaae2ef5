"""Products of CSR matrices, one kernel per kind of product, and of a CSR matrix with vectors."""

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.products.blocks import block_products
from bppsa_cupy.raw_kernels.twins.scans.batched import (
    GROUP,
    group_size,
    is_streamed,
    one_block_per,
    read,
    write,
)
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, multiply_add, spread, store, sum_lanes
from bppsa_cupy.raw_kernels.twins.simd.vectors import WORD
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.raw_kernels.twins.threads.threads import thread_count
from bppsa_cupy.system.compiled import compiled, part

# ---- csr_spmv ----


@part(forceinline=True)
def _add_pair(data, batched, entry, x, indices, width, sample, left, right):
    """Add an entry's products for the group from `sample` on and the next one."""
    place, vector = np.uint64(indices[entry]) * width + sample, entry * width + sample
    factor = read(data, entry, batched, width, sample, GROUP)
    other = load(data, vector + GROUP) if batched else factor
    return multiply_add(factor, load(x, place), left), multiply_add(other, load(x, place + GROUP), right)


@kernel(lambda s: one_thread_per(s["rows"] * s["batch"]))
@compiled(parallel=True)
def csr_spmv(indptr, indices, data, x, addend, y, rows, columns, nnz, batch, batched, affine):
    width, one, two, three, four = np.uint64(batch), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    zero, two_groups = x.dtype.type(0), two * GROUP
    for row in prange(np.uint64(rows)):
        first, end = np.uint64(indptr[row]), np.uint64(indptr[row + one])
        if width == one:
            total = addend[row] if affine else zero
            for entry in range(first, end):
                total += data[entry] * x[indices[entry]]
            y[row] = total
            continue
        sample = np.uint64(0)
        while sample + two_groups <= width:  # so that rows of x are read in longer pieces
            beside = sample + GROUP
            s0 = load(addend, row * width + sample) if affine else spread(zero)
            t0 = load(addend, row * width + beside) if affine else spread(zero)
            s1, s2, s3 = spread(zero), spread(zero), spread(zero)
            t1, t2, t3 = spread(zero), spread(zero), spread(zero)
            entry = first
            while entry + four <= end:
                s0, t0 = _add_pair(data, batched, entry, x, indices, width, sample, s0, t0)
                s1, t1 = _add_pair(data, batched, entry + one, x, indices, width, sample, s1, t1)
                s2, t2 = _add_pair(data, batched, entry + two, x, indices, width, sample, s2, t2)
                s3, t3 = _add_pair(data, batched, entry + three, x, indices, width, sample, s3, t3)
                entry += four
            while entry < end:
                s0, t0 = _add_pair(data, batched, entry, x, indices, width, sample, s0, t0)
                entry += one
            store(y, row * width + sample, (s0 + s1) + (s2 + s3))
            store(y, row * width + beside, (t0 + t1) + (t2 + t3))
            sample += two_groups
        begun = sample
        for sample in range(begun, width, GROUP):
            count = group_size(width, sample)
            # Four sums, so that one multiply-add need not wait for the one before.
            s0 = read(addend, row, True, width, sample, count) if affine else spread(zero)
            s1, s2, s3 = spread(zero), spread(zero), spread(zero)
            entry = first
            while entry + four <= end:
                e1, e2, e3 = entry + one, entry + np.uint64(2), entry + np.uint64(3)
                x0 = read(x, np.uint64(indices[entry]), True, width, sample, count)
                x1 = read(x, np.uint64(indices[e1]), True, width, sample, count)
                x2 = read(x, np.uint64(indices[e2]), True, width, sample, count)
                x3 = read(x, np.uint64(indices[e3]), True, width, sample, count)
                s0 = multiply_add(read(data, entry, batched, width, sample, count), x0, s0)
                s1 = multiply_add(read(data, e1, batched, width, sample, count), x1, s1)
                s2 = multiply_add(read(data, e2, batched, width, sample, count), x2, s2)
                s3 = multiply_add(read(data, e3, batched, width, sample, count), x3, s3)
                entry += four
            while entry < end:
                x0 = read(x, np.uint64(indices[entry]), True, width, sample, count)
                s0 = multiply_add(read(data, entry, batched, width, sample, count), x0, s0)
                entry += one
            write(y, row, width, sample, count, (s0 + s1) + (s2 + s3), False)


# ---- csr_sddmm ----


@kernel(lambda s: one_thread_per(s["nnz"]))
@compiled(parallel=True)
def csr_sddmm(x_rows, y_rows, x, y, values, rows, columns, nnz, inner):
    width, lanes, zero = np.uint64(inner), np.uint64(LANES), x.dtype.type(0)
    for entry in prange(np.uint64(nnz)):
        left, right = np.uint64(x_rows[entry]) * width, np.uint64(y_rows[entry]) * width
        sums, k = spread(zero), np.uint64(0)
        while k + lanes <= width:
            sums = multiply_add(load(x, left + k), load(y, right + k), sums)
            k += lanes
        total = sum_lanes(sums)
        while k < width:
            total += x[left + k] * y[right + k]
            k += np.uint64(1)
        values[entry] = total


# ---- product_scale_rows ----


@kernel(lambda s: one_thread_per(s["rows"] * s["batch"]))
@compiled(parallel=True)
def product_scale_rows(indptr, a, b, c, rows, nnz, batch, a_batched, b_batched):
    width = np.uint64(batch)
    streamed = is_streamed(c, width)
    for row in prange(np.uint64(rows)):
        for entry in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
            for sample in range(np.uint64(0), width, GROUP):
                count = group_size(width, sample)
                factor = read(a, row, a_batched, width, sample, count)
                value = factor * read(b, entry, b_batched, width, sample, count)
                write(c, entry, width, sample, count, value, streamed)


# ---- product_scale_columns ----


@kernel(lambda s: one_thread_per(s["nnz"] * s["batch"]))
@compiled(parallel=True)
def product_scale_columns(indices, a, b, c, columns, nnz, batch, a_batched, b_batched):
    width = np.uint64(batch)
    streamed = is_streamed(c, width)
    for entry in prange(np.uint64(nnz)):
        column = np.uint64(indices[entry])
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            factor = read(b, column, b_batched, width, sample, count)
            value = read(a, entry, a_batched, width, sample, count) * factor
            write(c, entry, width, sample, count, value, streamed)


# ---- product_select_rows ----


@kernel(lambda s: one_thread_per(s["rows"] * s["batch"]))
@compiled(parallel=True)
def product_select_rows(
    a_indptr, a_indices, a, b_indptr, b, c_indptr, c,
    rows, inner, a_nnz, b_nnz, c_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width, one = np.uint64(batch), np.uint64(1)
    streamed = is_streamed(c, width)
    for row in prange(np.uint64(rows)):
        chosen = np.uint64(a_indptr[row])
        if chosen < np.uint64(a_indptr[row + one]):
            source = np.uint64(b_indptr[a_indices[chosen]])
            for entry in range(np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])):
                for sample in range(np.uint64(0), width, GROUP):
                    count = group_size(width, sample)
                    factor = read(a, chosen, a_batched, width, sample, count)
                    value = factor * read(b, source, b_batched, width, sample, count)
                    write(c, entry, width, sample, count, value, streamed)
                source += one


# ---- product_full_rows ----

#: Threads of a block, which has a row of C.
FULL_ROWS_BLOCK = 128


@kernel(lambda s: one_block_per(s["rows"] if s["batch"] else 0, FULL_ROWS_BLOCK))
@compiled(parallel=True)
def product_full_rows(
    a_indptr, a_indices, a, b_indptr, b, c_indptr, c,
    rows, inner, a_nnz, b_nnz, c_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width, one, two, four = np.uint64(batch), np.uint64(1), np.uint64(2), np.uint64(4)
    three = two + one
    streamed = is_streamed(c, width)
    zero = c.dtype.type(0)
    for row in prange(np.uint64(rows)):
        first, last = np.uint64(a_indptr[row]), np.uint64(a_indptr[row + one])
        start, end = np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            entry = start
            # Four columns at a time, whose sums stay in registers.
            while entry + four <= end:
                s0, s1, s2, s3 = spread(zero), spread(zero), spread(zero), spread(zero)
                for i in range(first, last):
                    factor = read(a, i, a_batched, width, sample, count)
                    middle = np.uint64(a_indices[i])
                    j = np.uint64(b_indptr[middle]) + entry - start
                    if j < np.uint64(b_indptr[middle + one]):
                        s0 = multiply_add(factor, read(b, j, b_batched, width, sample, count), s0)
                        s1 = multiply_add(factor, read(b, j + one, b_batched, width, sample, count), s1)
                        s2 = multiply_add(factor, read(b, j + two, b_batched, width, sample, count), s2)
                        s3 = multiply_add(factor, read(b, j + three, b_batched, width, sample, count), s3)
                write(c, entry, width, sample, count, s0, streamed)
                write(c, entry + one, width, sample, count, s1, streamed)
                write(c, entry + two, width, sample, count, s2, streamed)
                write(c, entry + three, width, sample, count, s3, streamed)
                entry += four
            while entry < end:
                s0 = spread(zero)
                for i in range(first, last):
                    middle = np.uint64(a_indices[i])
                    j = np.uint64(b_indptr[middle]) + entry - start
                    if j < np.uint64(b_indptr[middle + one]):
                        factor = read(a, i, a_batched, width, sample, count)
                        s0 = multiply_add(factor, read(b, j, b_batched, width, sample, count), s0)
                write(c, entry, width, sample, count, s0, streamed)
                entry += one


# ---- product_dense ----

#: Rows and columns of C that a thread has the sums of, in registers.
TILE = 4


#: Rows of C that one library GEMM makes.
BAND_ROWS = 64


@kernel(lambda s: one_thread_per(-(-s["rows"] // TILE) * -(-s["columns"] // TILE) * s["batch"]))
@compiled(parallel=True)
def product_dense(a, b, c, rows, inner, columns, batch, a_batched, b_batched):
    if batch == 1 or (b_batched and not a_batched):
        # Samples are columns of B: one plain product, cut by rows.
        across = columns * batch
        right = b.reshape(inner, across)
        bands = (rows + BAND_ROWS - 1) // BAND_ROWS
        for band in prange(bands):
            first, end = band * BAND_ROWS, min(rows, (band + 1) * BAND_ROWS)
            out = c[first * across : end * across].reshape(end - first, across)
            if inner == 0:
                out[...] = 0
            else:
                np.dot(a[first * inner : end * inner].reshape(end - first, inner), right, out)
    elif a_batched and not b_batched:
        left = b.reshape(inner, columns).T
        for row in prange(rows):
            out = c[row * columns * batch : (row + 1) * columns * batch].reshape(columns, batch)
            if inner == 0:
                out[...] = 0
            else:
                np.dot(left, a[row * inner * batch : (row + 1) * inner * batch].reshape(inner, batch), out)
    else:
        blocks = (rows + TILE - 1) // TILE
        for block in prange(blocks):
            end = min(rows, (block + 1) * TILE)
            _rows(a, b, c, block * TILE, end, inner, columns, batch, a_batched, b_batched)


@compiled()
def _rows(a, b, c, first, end, inner, columns, batch, a_batched, b_batched):
    """Rows `first` to `end` of C, two and then one at a time, four columns at a time."""
    width, depth, across = np.uint64(batch), np.uint64(inner), np.uint64(columns)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    streamed = is_streamed(c, width)
    zero = c.dtype.type(0)
    for sample in range(np.uint64(0), width, GROUP):
        count = group_size(width, sample)
        row = np.uint64(first)
        while row < np.uint64(end):
            # Below the last row the pair's second one is that row again, and is not written.
            pair = row + one < np.uint64(end)
            upper, lower = row * depth, (row + one if pair else row) * depth
            entry = row * across
            column = np.uint64(0)
            while column + four <= across:
                u0, u1, u2, u3 = spread(zero), spread(zero), spread(zero), spread(zero)
                l0, l1, l2, l3 = spread(zero), spread(zero), spread(zero), spread(zero)
                for k in range(depth):
                    x = read(a, upper + k, a_batched, width, sample, count)
                    y = read(a, lower + k, a_batched, width, sample, count)
                    j = k * across + column
                    z = read(b, j, b_batched, width, sample, count)
                    u0, l0 = multiply_add(x, z, u0), multiply_add(y, z, l0)
                    z = read(b, j + one, b_batched, width, sample, count)
                    u1, l1 = multiply_add(x, z, u1), multiply_add(y, z, l1)
                    z = read(b, j + two, b_batched, width, sample, count)
                    u2, l2 = multiply_add(x, z, u2), multiply_add(y, z, l2)
                    z = read(b, j + three, b_batched, width, sample, count)
                    u3, l3 = multiply_add(x, z, u3), multiply_add(y, z, l3)
                write(c, entry + column, width, sample, count, u0, streamed)
                write(c, entry + column + one, width, sample, count, u1, streamed)
                write(c, entry + column + two, width, sample, count, u2, streamed)
                write(c, entry + column + three, width, sample, count, u3, streamed)
                if pair:
                    write(c, entry + across + column, width, sample, count, l0, streamed)
                    write(c, entry + across + column + one, width, sample, count, l1, streamed)
                    write(c, entry + across + column + two, width, sample, count, l2, streamed)
                    write(c, entry + across + column + three, width, sample, count, l3, streamed)
                column += four
            while column < across:
                u0, l0 = spread(zero), spread(zero)
                for k in range(depth):
                    z = read(b, k * across + column, b_batched, width, sample, count)
                    u0 = multiply_add(read(a, upper + k, a_batched, width, sample, count), z, u0)
                    l0 = multiply_add(read(a, lower + k, a_batched, width, sample, count), z, l0)
                write(c, entry + column, width, sample, count, u0, streamed)
                if pair:
                    write(c, entry + across + column, width, sample, count, l0, streamed)
                column += one
            row += two


# ---- product_terms ----

#: What a term of one sample, and one of a group of samples, costs beside an element of `spans.LEAST`.
TERM, GROUP_TERM = 8, 32


@compiled()
def _one_sample(start, end, term_ptr, a_position, b_position, a, b, c):
    """Entries `start` to `end` of C for one sample; a sum begins with its first term."""
    one = np.uint64(1)
    term = np.uint64(term_ptr[start])
    for entry in range(start, end):
        last = np.uint64(term_ptr[entry + one])
        c[entry] = 0  # a store to every entry costs less than a jump past those without terms
        if term < last:
            total = a[a_position[term]] * b[b_position[term]]
            term += one
            while term < last:
                total += a[a_position[term]] * b[b_position[term]]
                term += one
            c[entry] = total


@compiled()
def _groups(start, end, term_ptr, a_position, b_position, a, b, c, width, a_batched, b_batched, streamed):
    """Entries `start` to `end` of C for `width` samples."""
    zero = c.dtype.type(0)
    for entry in range(start, end):
        first, last = np.uint64(term_ptr[entry]), np.uint64(term_ptr[entry + np.uint64(1)])
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            total = spread(zero)
            for term in range(first, last):
                x = read(a, np.uint64(a_position[term]), a_batched, width, sample, count)
                y = read(b, np.uint64(b_position[term]), b_batched, width, sample, count)
                total = multiply_add(x, y, total)
            write(c, entry, width, sample, count, total, streamed)


_spans_of_one_sample, _spans_of_groups = spans_of(_one_sample), spans_of(_groups)


@kernel(lambda s: one_thread_per(s["c_nnz"] * s["batch"]))
@compiled()
def product_terms(
    term_ptr, a_position, b_position, a, b, c,
    c_nnz, terms, a_nnz, b_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    if batch == 1:
        _spans_of_one_sample(TERM * terms, c_nnz, (term_ptr, a_position, b_position, a, b, c))
        return
    width = np.uint64(batch)
    groups = (batch + LANES - 1) // LANES
    _spans_of_groups(
        GROUP_TERM * terms * groups, c_nnz,
        (
            term_ptr, a_position, b_position, a, b, c, width, a_batched, b_batched,
            is_streamed(c, width),
        ),
    )  # fmt: skip


# ---- product_pairs ----


@intrinsic
def _zeroed(typingctx, number, flag):
    """A number if `flag` is 0, and 0 if it is 1, by a mask: a jump would be mispredicted at most entries."""

    def codegen(context, builder, signature, arguments):
        number, flag = arguments
        size = 4 if signature.args[0] == types.float32 else 8
        word, lanes = ir.IntType(8 * size), 16 // size
        table = ir.Constant(ir.ArrayType(word, 1 + lanes), [-1] + [0] * lanes)
        place = builder.gep(cgutils.global_constant(builder, "masks", table), [WORD(0), flag])
        vector, masks = ir.VectorType(number.type, lanes), ir.VectorType(word, lanes)
        mask = builder.load(builder.bitcast(place, masks.as_pointer()), align=size)
        first = ir.IntType(32)(0)
        spread_out = builder.insert_element(ir.Constant(vector, ir.Undefined), number, first)
        kept = builder.bitcast(builder.and_(builder.bitcast(spread_out, masks), mask), vector)
        return builder.extract_element(kept, first)

    return number(number, types.uint64), codegen


@part()
def _first_from(term_ptr, first, end, term):
    """The first of entries `first` to `end` whose terms begin at `term` or later."""
    while first < end:
        middle = (first + end) // np.uint64(2)
        if np.uint64(term_ptr[middle]) < term:
            first = middle + np.uint64(1)
        else:
            end = middle
    return first


@part()
def _add_term(pairs, term, a, b, c, entry, total):
    """Add a term to an entry; return the entry of the next term, and its sum so far."""
    pair = np.uint64(pairs[term])
    left, right = pair << np.uint64(1) >> np.uint64(33), pair & np.uint64(0xFFFFFFFF)
    total += a[left] * b[right]
    c[entry] = total
    is_last = pair >> np.uint64(63)
    return entry + is_last, _zeroed(total, is_last)


@compiled()
def _pairs(start, end, term_ptr, pairs, a, b, c):
    """Entries `start` to `end` of C, in three parts side by side: an addition waits for the one before."""
    zero, three, x = c.dtype.type(0), np.uint64(3), start
    first, last = np.uint64(term_ptr[start]), np.uint64(term_ptr[end])
    share = (last - first) // three
    y = _first_from(term_ptr, start, end, first + share)
    z = _first_from(term_ptr, y, end, first + share + share)
    second, third = np.uint64(term_ptr[y]), np.uint64(term_ptr[z])
    rounds = min(second - first, third - second, last - third)
    x_total, y_total, z_total = zero, zero, zero
    for term in range(rounds):
        x, x_total = _add_term(pairs, first + term, a, b, c, x, x_total)
        y, y_total = _add_term(pairs, second + term, a, b, c, y, y_total)
        z, z_total = _add_term(pairs, third + term, a, b, c, z, z_total)
    for term in range(first + rounds, second):
        x, x_total = _add_term(pairs, term, a, b, c, x, x_total)
    for term in range(second + rounds, third):
        y, y_total = _add_term(pairs, term, a, b, c, y, y_total)
    for term in range(third + rounds, last):
        z, z_total = _add_term(pairs, term, a, b, c, z, z_total)


_spans_of_pairs = spans_of(_pairs)


@kernel(lambda s: one_thread_per(s["c_nnz"]))
@compiled()
def product_pairs(term_ptr, pairs, a, b, c, c_nnz, terms, a_nnz, b_nnz):
    _spans_of_pairs(TERM * terms, c_nnz, (term_ptr, pairs, a, b, c))


# ---- product_reorder ----


@kernel(lambda s: one_thread_per(s["entries"] * s["batch"]))
@compiled(parallel=True)
def product_reorder(positions, a, c, a_nnz, entries, batch):
    width = np.uint64(batch)
    streamed = is_streamed(c, width)
    for entry in prange(np.uint64(entries)):
        place = np.uint64(positions[entry])
        if width == np.uint64(1):
            c[entry] = a[place]
            continue
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            write(c, entry, width, sample, count, read(a, place, True, width, sample, count), streamed)


# ---- product_blocks ----


@kernel(lambda s: one_thread_per(s["c_blocks"] * s["rows"] * s["columns"] * s["batch"]))
def product_blocks(
    term_ptr, a_position, b_position, c_start, c_stride, a, b, c,
    c_blocks, terms, a_blocks, b_blocks, rows, inner, columns, batch,
    a_transposed, c_transposed, a_batched, b_batched,
):  # fmt: skip
    lists = term_ptr, a_position, b_position, c_start, c_stride
    if batch == 1:
        product = block_products(int(rows), int(inner), int(columns), bool(a_transposed), bool(c_transposed))
        product(*lists, a, b, c, c_blocks, terms)
    else:
        sizes, flags = (rows, inner, columns, batch), (a_transposed, c_transposed, a_batched, b_batched)
        _batched_blocks(lists, a, b, c, sizes, flags)


@compiled(parallel=True)
def _batched_blocks(lists, a, b, c, sizes, flags):
    """Blocks of C for a batch, two columns at a time."""
    term_ptr, a_position, b_position, c_start, c_stride = lists
    rows, inner, columns = np.uint64(sizes[0]), np.uint64(sizes[1]), np.uint64(sizes[2])
    width, one, two = np.uint64(sizes[3]), np.uint64(1), np.uint64(2)
    a_transposed, c_transposed, a_batched, b_batched = flags
    down, across = (one, rows) if a_transposed else (inner, one)
    streamed = is_streamed(c, width)
    zero = c.dtype.type(0)
    for block in prange(np.uint64(c_start.size)):
        first, last = np.uint64(term_ptr[block]), np.uint64(term_ptr[block + one])
        for i in range(rows):
            stride = np.uint64(c_stride[block])
            below, aside = (one, stride) if c_transposed else (stride, one)
            entry = np.uint64(c_start[block]) + i * below
            for j in range(np.uint64(0), columns, two):
                # Of an odd number of columns the last one is made twice, and written once.
                beside = one if j + one < columns else np.uint64(0)
                for sample in range(np.uint64(0), width, GROUP):
                    count = group_size(width, sample)
                    s0, s1 = spread(zero), spread(zero)
                    for term in range(first, last):
                        left = np.uint64(a_position[term]) * rows * inner + i * down
                        right = np.uint64(b_position[term]) * inner * columns + j
                        for k in range(inner):
                            x = read(a, left + k * across, a_batched, width, sample, count)
                            place = right + k * columns
                            s0 = multiply_add(x, read(b, place, b_batched, width, sample, count), s0)
                            s1 = multiply_add(x, read(b, place + beside, b_batched, width, sample, count), s1)
                    write(c, entry + j * aside, width, sample, count, s0, streamed)
                    if beside:
                        write(c, entry + (j + one) * aside, width, sample, count, s1, streamed)


# ---- product_row_wise ----

#: Threads of a block, which has a row of C and so many samples.
ROW_WISE_BLOCK, SAMPLES = 128, 32


#: Rows a chunk has at least; each chunk takes room for one row of sums.
CHUNK_ROWS = 16


@kernel(lambda s: one_block_per(s["rows"] * -(-s["batch"] // SAMPLES), ROW_WISE_BLOCK))
@compiled(parallel=True)
def product_row_wise(
    a_indptr, a_indices, a, b_indptr, b_indices, b, c_indptr, c_indices, c,
    rows, inner, columns, a_nnz, b_nnz, c_nnz, batch, a_batched, b_batched,
):  # fmt: skip
    width, one = np.uint64(batch), np.uint64(1)
    streamed = is_streamed(c, width)
    zero = c.dtype.type(0)
    chunks = min(64, (rows + CHUNK_ROWS - 1) // CHUNK_ROWS)
    for chunk in prange(chunks):
        sums = np.zeros(np.uint64(columns) * (one if width == one else GROUP), c.dtype)
        for row in range(np.uint64(rows * chunk // chunks), np.uint64(rows * (chunk + 1) // chunks)):
            if width == one:
                for i in range(np.uint64(a_indptr[row]), np.uint64(a_indptr[row + one])):
                    middle = np.uint64(a_indices[i])
                    for j in range(np.uint64(b_indptr[middle]), np.uint64(b_indptr[middle + one])):
                        sums[b_indices[j]] += a[i] * b[j]
                for entry in range(np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])):
                    c[entry] = sums[c_indices[entry]]
                    sums[c_indices[entry]] = zero
                continue
            for sample in range(np.uint64(0), width, GROUP):
                count = group_size(width, sample)
                for i in range(np.uint64(a_indptr[row]), np.uint64(a_indptr[row + one])):
                    factor = read(a, i, a_batched, width, sample, count)
                    middle = np.uint64(a_indices[i])
                    for j in range(np.uint64(b_indptr[middle]), np.uint64(b_indptr[middle + one])):
                        place = np.uint64(b_indices[j]) * GROUP
                        value = read(b, j, b_batched, width, sample, count)
                        store(sums, place, multiply_add(factor, value, load(sums, place)))
                for entry in range(np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])):
                    place = np.uint64(c_indices[entry]) * GROUP
                    write(c, entry, width, sample, count, load(sums, place), streamed)
                    store(sums, place, spread(zero))


# ---- product_row_dots ----


@part(forceinline=True)
def _set_row(sums, indices, values, first, end, batched, width, sample, count):
    """Set the sums of the columns of a row's entries, (columns,) or (columns, GROUP), to their values."""
    for entry in range(first, end):
        if width == np.uint64(1):
            sums[indices[entry]] = values[entry]
        else:
            value = read(values, entry, batched, width, sample, count)
            store(sums, np.uint64(indices[entry]) * GROUP, value)


@part(forceinline=True)
def _clear_row(sums, indices, first, end, width):
    """Set the sums of the columns of a row's entries to 0."""
    zero = sums.dtype.type(0)
    for entry in range(first, end):
        if width == np.uint64(1):
            sums[indices[entry]] = zero
        else:
            store(sums, np.uint64(indices[entry]) * GROUP, spread(zero))


@part(forceinline=True)
def _dot(values, indices, sums, first, end):
    """The values of a row's entries times the sums of their columns, in four sums side by side."""
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    s0 = s1 = s2 = s3 = sums.dtype.type(0)
    while first + four <= end:
        s0 += values[first] * sums[indices[first]]
        s1 += values[first + one] * sums[indices[first + one]]
        s2 += values[first + two] * sums[indices[first + two]]
        s3 += values[first + three] * sums[indices[first + three]]
        first += four
    while first < end:
        s0 += values[first] * sums[indices[first]]
        first += one
    return (s0 + s1) + (s2 + s3)


@kernel(lambda s: one_thread_per(s["rows"] * s["batch"]))
@compiled(parallel=True)
def product_row_dots(
    a_indptr, a_indices, a, b_indptr, b_indices, b, c_indptr, c_indices, c,
    rows, inner, columns, a_nnz, b_nnz, c_nnz, batch, b_batched, c_batched,
):  # fmt: skip
    width, one = np.uint64(batch), np.uint64(1)
    zero = a.dtype.type(0)
    chunks = min(64, (rows + CHUNK_ROWS - 1) // CHUNK_ROWS)
    for chunk in prange(chunks):
        sums = np.zeros(np.uint64(columns) * (one if width == one else GROUP), a.dtype)
        for row in range(np.uint64(rows * chunk // chunks), np.uint64(rows * (chunk + 1) // chunks)):
            first, end = np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])
            for sample in range(np.uint64(0), width, GROUP):
                count = group_size(width, sample)
                _set_row(sums, c_indices, c, first, end, c_batched, width, sample, count)
                for entry in range(np.uint64(a_indptr[row]), np.uint64(a_indptr[row + one])):
                    middle = np.uint64(a_indices[entry])
                    b_first, b_end = np.uint64(b_indptr[middle]), np.uint64(b_indptr[middle + one])
                    if width == one:
                        a[entry] = _dot(b, b_indices, sums, b_first, b_end)
                        continue
                    total = spread(zero)
                    for j in range(b_first, b_end):
                        value = read(b, j, b_batched, width, sample, count)
                        total = multiply_add(value, load(sums, np.uint64(b_indices[j]) * GROUP), total)
                    write(a, entry, width, sample, count, total, False)
                _clear_row(sums, c_indices, first, end, width)


# ---- product_row_sums ----


@part(forceinline=True)
def _add_row(out, factor, indices, sums, first, end, width, sample, count):
    """Add a factor times the sums of their columns to the values of a row's entries."""
    for entry in range(first, end):
        value = load(sums, np.uint64(indices[entry]) * GROUP)
        total = multiply_add(factor, value, read(out, entry, True, width, sample, count))
        write(out, entry, width, sample, count, total, False)


@kernel(lambda s: one_thread_per(s["b_nnz"] * s["batch"]))
@compiled(parallel=True)
def product_row_sums(
    a_indptr, a_indices, a, b_indptr, b_indices, b, c_indptr, c_indices, c,
    rows, inner, columns, a_nnz, b_nnz, c_nnz, batch, a_batched, c_batched,
):  # fmt: skip
    width, one = np.uint64(batch), np.uint64(1)
    # Each chunk has rows of B, and reads C: an entry's terms have one order, whatever the number of chunks.
    chunks = thread_count()
    for chunk in prange(chunks):
        sums = np.zeros(np.uint64(columns) * (one if width == one else GROUP), b.dtype)
        start = _first_from(b_indptr, np.uint64(0), np.uint64(inner), np.uint64(b_nnz * chunk // chunks))
        stop = _first_from(b_indptr, start, np.uint64(inner), np.uint64(b_nnz * (chunk + 1) // chunks))
        b[np.uint64(b_indptr[start]) * width : np.uint64(b_indptr[stop]) * width] = 0
        for sample in range(np.uint64(0), width, GROUP):
            count = group_size(width, sample)
            for row in range(np.uint64(rows)):
                last = np.uint64(a_indptr[row + one])
                entry = _first_from(a_indices, np.uint64(a_indptr[row]), last, start)
                if entry == last or np.uint64(a_indices[entry]) >= stop:
                    continue
                first, end = np.uint64(c_indptr[row]), np.uint64(c_indptr[row + one])
                _set_row(sums, c_indices, c, first, end, c_batched, width, sample, count)
                while entry < last and np.uint64(a_indices[entry]) < stop:
                    middle = np.uint64(a_indices[entry])
                    b_first, b_end = np.uint64(b_indptr[middle]), np.uint64(b_indptr[middle + one])
                    if width == one:
                        for j in range(b_first, b_end):
                            b[j] += a[entry] * sums[b_indices[j]]
                    else:
                        factor = read(a, entry, a_batched, width, sample, count)
                        _add_row(b, factor, b_indices, sums, b_first, b_end, width, sample, count)
                    entry += one
                _clear_row(sums, c_indices, first, end, width)
