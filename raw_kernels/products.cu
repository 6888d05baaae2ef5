// Products of CSR matrices, one kernel per kind of product, and of a CSR matrix with vectors.

#include "prelude.cuh"
#include "batched.cuh"

// ---- csr_spmv ----

// y = A x (+ addend): one step of the down-sweep, or of the linear scan, for every sample.
// One thread a row and sample; neighbouring threads take neighbouring samples of a row.
extern "C" __global__ void csr_spmv(
    const index_t* __restrict__ indptr,   // (rows + 1)
    const index_t* __restrict__ indices,  // (nnz)
    const real* __restrict__ data,        // (nnz, batch) if batched else (nnz)
    const real* __restrict__ x,           // (columns, batch)
    const real* __restrict__ addend,      // (rows * batch) if affine else (0)
    real* __restrict__ y,                 // (rows, batch) output only
    size_type rows, size_type columns, size_type nnz, size_type batch, int batched, int affine)
{
    GRID_STRIDE(item, rows * batch) {
        size_type row, sample;
        split(item, batch, &row, &sample);
        real sum = affine ? addend[item] : real(0);
        for (size_type entry = indptr[row]; entry < (size_type)indptr[row + 1]; ++entry)
            sum += value_at(data, entry, batched, batch, sample) * x[(size_type)indices[entry] * batch + sample];
        y[item] = sum;
    }
}

// ---- csr_sddmm ----

// Products of rows of X with rows of Y, a pair per entry of a pattern. One thread an entry.
extern "C" __global__ void csr_sddmm(
    const index_t* __restrict__ x_rows,  // (nnz): row of X of each entry
    const index_t* __restrict__ y_rows,  // (nnz): row of Y of each entry
    const real* __restrict__ x,          // (rows, inner)
    const real* __restrict__ y,          // (columns, inner)
    real* __restrict__ values,           // (nnz) output only
    size_type rows, size_type columns, size_type nnz, size_type inner)
{
    GRID_STRIDE(entry, nnz) {
        const real *left = x + (size_type)x_rows[entry] * inner, *right = y + (size_type)y_rows[entry] * inner;
        real sum = real(0);
        for (size_type k = 0; k < inner; ++k) sum += left[k] * right[k];
        values[entry] = sum;
    }
}

// ---- product_scale_rows ----

// C = A B where A is a whole diagonal: row i of B times A's entry i. C has B's pattern.
extern "C" __global__ void product_scale_rows(
    const index_t* __restrict__ indptr,  // (rows + 1): B's and C's
    const real* __restrict__ a,          // (rows, batch) if a_batched else (rows)
    const real* __restrict__ b,          // (nnz, batch) if b_batched else (nnz)
    real* __restrict__ c,                // (nnz, batch) output only
    size_type rows, size_type nnz, size_type batch, int a_batched, int b_batched)
{
    GRID_STRIDE(item, rows * batch) {
        size_type row, sample;
        split(item, batch, &row, &sample);
        real factor = value_at(a, row, a_batched, batch, sample);
        for (size_type entry = indptr[row]; entry < (size_type)indptr[row + 1]; ++entry)
            c[entry * batch + sample] = factor * value_at(b, entry, b_batched, batch, sample);
    }
}

// ---- product_scale_columns ----

// C = A B where B is a whole diagonal: column j of A times B's entry j. C has A's pattern.
extern "C" __global__ void product_scale_columns(
    const index_t* __restrict__ indices,  // (nnz): A's and C's
    const real* __restrict__ a,           // (nnz, batch) if a_batched else (nnz)
    const real* __restrict__ b,           // (columns, batch) if b_batched else (columns)
    real* __restrict__ c,                 // (nnz, batch) output only
    size_type columns, size_type nnz, size_type batch, int a_batched, int b_batched)
{
    GRID_STRIDE(item, nnz * batch) {
        size_type entry, sample;
        split(item, batch, &entry, &sample);
        c[item] = value_at(a, entry, a_batched, batch, sample)
            * value_at(b, (size_type)indices[entry], b_batched, batch, sample);
    }
}

// ---- product_select_rows ----

// C = A B where A is a selection (at most one entry a row, as of max-pooling without overlap): row i
// of C is the row of B that A's entry names, times that entry.
extern "C" __global__ void product_select_rows(
    const index_t* __restrict__ a_indptr,   // (rows + 1)
    const index_t* __restrict__ a_indices,  // (a_nnz)
    const real* __restrict__ a,             // (a_nnz, batch) if a_batched else (a_nnz)
    const index_t* __restrict__ b_indptr,   // (inner + 1)
    const real* __restrict__ b,             // (b_nnz, batch) if b_batched else (b_nnz)
    const index_t* __restrict__ c_indptr,   // (rows + 1)
    real* __restrict__ c,                   // (c_nnz, batch) output only
    size_type rows, size_type inner, size_type a_nnz, size_type b_nnz, size_type c_nnz, size_type batch,
    int a_batched, int b_batched)
{
    GRID_STRIDE(item, rows * batch) {
        size_type row, sample;
        split(item, batch, &row, &sample);
        size_type chosen = a_indptr[row];
        if (chosen == (size_type)a_indptr[row + 1]) continue;
        real factor = value_at(a, chosen, a_batched, batch, sample);
        size_type source = b_indptr[a_indices[chosen]];
        for (size_type entry = c_indptr[row]; entry < (size_type)c_indptr[row + 1]; ++entry, ++source)
            c[entry * batch + sample] = factor * value_at(b, source, b_batched, batch, sample);
    }
}

// ---- product_full_rows ----

// C = A B where every row of B is empty or full, so that each row of C is, too: row i of C sums B's
// full rows times the entries of A's row i. A block a row, a thread an entry of it and sample, whose sum
// stays in a register.
extern "C" __global__ void product_full_rows(
    const index_t* __restrict__ a_indptr,   // (rows + 1)
    const index_t* __restrict__ a_indices,  // (a_nnz)
    const real* __restrict__ a,             // (a_nnz, batch) if a_batched else (a_nnz)
    const index_t* __restrict__ b_indptr,   // (inner + 1)
    const real* __restrict__ b,             // (b_nnz, batch) if b_batched else (b_nnz)
    const index_t* __restrict__ c_indptr,   // (rows + 1)
    real* __restrict__ c,                   // (c_nnz, batch) output only
    size_type rows, size_type inner, size_type a_nnz, size_type b_nnz, size_type c_nnz, size_type batch,
    int a_batched, int b_batched)
{
    for (size_type row = blockIdx.x; row < rows; row += gridDim.x) {
        size_type first = c_indptr[row], length = (size_type)c_indptr[row + 1] - first;
        for (size_type item = threadIdx.x; item < length * batch; item += blockDim.x) {
            size_type column, sample;
            split(item, batch, &column, &sample);
            real sum = real(0);
            for (size_type i = a_indptr[row]; i < (size_type)a_indptr[row + 1]; ++i) {
                size_type middle = a_indices[i], entry = (size_type)b_indptr[middle] + column;
                if (entry < (size_type)b_indptr[middle + 1])
                    sum += value_at(a, i, a_batched, batch, sample)
                        * value_at(b, entry, b_batched, batch, sample);
            }
            c[first * batch + item] = sum;
        }
    }
}

// ---- product_dense ----

// C = A B where all three store every element, row-major. One thread a block of 4 by 4 elements of C
// and sample, whose sums stay in registers: 8 loads for 16 multiply-adds, neighbouring threads of
// neighbouring samples. At the edge a row or column is worked on twice and written once.

#define TILE 4

extern "C" __global__ void product_dense(
    const real* __restrict__ a,  // (rows, inner, batch) if a_batched else (rows, inner)
    const real* __restrict__ b,  // (inner, columns, batch) if b_batched else (inner, columns)
    real* __restrict__ c,        // (rows, columns, batch) output only
    size_type rows, size_type inner, size_type columns, size_type batch, int a_batched, int b_batched)
{
    size_type across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    GRID_STRIDE(item, down * across * batch) {
        size_type block, sample;
        split(item, batch, &block, &sample);
        size_type first_row = block / across * TILE, first_column = block % across * TILE;
        real sum[TILE][TILE] = {};
        for (size_type k = 0; k < inner; ++k) {
            real left[TILE], right[TILE];
#pragma unroll
            for (int i = 0; i < TILE; ++i) {
                size_type row = first_row + i < rows ? first_row + i : rows - 1;
                size_type column = first_column + i < columns ? first_column + i : columns - 1;
                left[i] = value_at(a, row * inner + k, a_batched, batch, sample);
                right[i] = value_at(b, k * columns + column, b_batched, batch, sample);
            }
#pragma unroll
            for (int i = 0; i < TILE; ++i)
#pragma unroll
                for (int j = 0; j < TILE; ++j) sum[i][j] += left[i] * right[j];
        }
#pragma unroll
        for (int i = 0; i < TILE; ++i)
#pragma unroll
            for (int j = 0; j < TILE; ++j)
                if (first_row + i < rows && first_column + j < columns)
                    c[((first_row + i) * columns + first_column + j) * batch + sample] = sum[i][j];
    }
}

// ---- product_terms ----

// C = A B by a term list: for every entry of C, the pairs of entries of A and B whose products it
// sums. Output-stationary: one thread an entry of C and sample, terms in their order.
extern "C" __global__ void product_terms(
    const index_t* __restrict__ term_ptr,    // (c_nnz + 1): first term of each entry of C
    const index_t* __restrict__ a_position,  // (terms)
    const index_t* __restrict__ b_position,  // (terms)
    const real* __restrict__ a,              // (a_nnz, batch) if a_batched else (a_nnz)
    const real* __restrict__ b,              // (b_nnz, batch) if b_batched else (b_nnz)
    real* __restrict__ c,                    // (c_nnz, batch) output only
    size_type c_nnz, size_type terms, size_type a_nnz, size_type b_nnz, size_type batch, int a_batched,
    int b_batched)
{
    GRID_STRIDE(item, c_nnz * batch) {
        size_type entry, sample;
        split(item, batch, &entry, &sample);
        real sum = real(0);
        for (size_type term = term_ptr[entry]; term < (size_type)term_ptr[entry + 1]; ++term)
            sum += value_at(a, (size_type)a_position[term], a_batched, batch, sample)
                * value_at(b, (size_type)b_position[term], b_batched, batch, sample);
        c[item] = sum;
    }
}

// ---- product_pairs ----

// As product_terms for one sample, where every entry of C has a term and both positions of a term are one number, the
// sign bit set at an entry's last term. One thread an entry.
extern "C" __global__ void product_pairs(
    const index_t* __restrict__ term_ptr,  // (c_nnz + 1): first term of each entry of C
    const long long* __restrict__ pairs,   // (terms): 2^32 times the position in A, and the position in B
    const real* __restrict__ a,            // (a_nnz)
    const real* __restrict__ b,            // (b_nnz)
    real* __restrict__ c,                  // (c_nnz) output only
    size_type c_nnz, size_type terms, size_type a_nnz, size_type b_nnz)
{
    GRID_STRIDE(entry, c_nnz) {
        real sum = real(0);
        for (size_type term = term_ptr[entry]; term < (size_type)term_ptr[entry + 1]; ++term)
            sum += a[pairs[term] >> 32 & 0x7fffffff] * b[pairs[term] & 0xffffffff];
        c[entry] = sum;
    }
}

// ---- product_reorder ----

// C has some of A's values, in any order.
extern "C" __global__ void product_reorder(
    const index_t* __restrict__ positions,  // (entries): in A, of each value of C
    const real* __restrict__ a,             // (a_nnz, batch)
    real* __restrict__ c,                   // (entries, batch) output only
    size_type a_nnz, size_type entries, size_type batch)
{
    GRID_STRIDE(item, entries * batch) {
        size_type entry, sample;
        split(item, batch, &entry, &sample);
        c[item] = a[(size_type)positions[entry] * batch + sample];
    }
}

// ---- product_blocks ----

// C = A B by a term list over dense blocks: blocks of A have `rows` by `inner` elements, those of B `inner` by
// `columns`, row-major; blocks of A are stored transposed if a_transposed, those of C if c_transposed. One thread an
// element of C and sample.
extern "C" __global__ void product_blocks(
    const index_t* __restrict__ term_ptr,    // (c_blocks + 1): first term of each block of C
    const index_t* __restrict__ a_position,  // (terms): block of A
    const index_t* __restrict__ b_position,  // (terms): block of B
    const index_t* __restrict__ c_start,     // (c_blocks): where a block of C begins
    const index_t* __restrict__ c_stride,    // (c_blocks): from each of its stored rows to the next one
    const real* __restrict__ a,  // (a_blocks * rows * inner, batch) if a_batched else (a_blocks * rows * inner)
    const real* __restrict__ b,  // (b_blocks * inner * columns, batch) if b_batched else (b_blocks * inner * columns)
    real* __restrict__ c,        // (c_blocks * rows * columns, batch) output only
    size_type c_blocks, size_type terms, size_type a_blocks, size_type b_blocks, size_type rows, size_type inner,
    size_type columns, size_type batch, int a_transposed, int c_transposed, int a_batched, int b_batched)
{
    const size_type down = a_transposed ? 1 : inner, across = a_transposed ? rows : 1;
    GRID_STRIDE(item, c_blocks * rows * columns * batch) {
        size_type place, sample;
        split(item, batch, &place, &sample);
        const size_type block = place / (rows * columns), i = place / columns % rows, j = place % columns;
        real sum = real(0);
        for (size_type term = term_ptr[block]; term < (size_type)term_ptr[block + 1]; ++term) {
            const size_type left = (size_type)a_position[term] * rows * inner + i * down;
            const size_type right = (size_type)b_position[term] * inner * columns + j;
            for (size_type k = 0; k < inner; ++k)
                sum += value_at(a, left + k * across, a_batched, batch, sample)
                    * value_at(b, right + k * columns, b_batched, batch, sample);
        }
        const size_type stride = c_stride[block], inside = c_transposed ? j * stride + i : i * stride + j;
        c[((size_type)c_start[block] + inside) * batch + sample] = sum;
    }
}

// ---- product_row_wise ----

// C = A B row by row, in Gustavson's order and without a map. A block a row of C and 32 samples, or all where
// there are fewer; it takes the columns in windows whose sums fit shared memory, so that C is written once.
// For one entry of A's row after the other, threads of neighbouring samples add that multiple of the part of
// B's row that lies in the window, no two of them to the same sum. A column's sums lie beside each other, a power
// of two of them where that takes no entry from a block's threads, so that 26 to 32 samples of one column do not
// meet in a bank. Of fewer, a warp has several columns, and each line of banks is turned by another number of
// columns: those of images, which are powers of two apart, do not all meet in one bank.

#define SAMPLES 32
#define THREADS 128
#define SUMS (32768 / (int)sizeof(real))
#define BANKS (128 / (int)sizeof(real))

// The first of the sorted columns from `first` to `end` that is not below `column`.
__device__ __forceinline__ size_type first_from(
    const index_t* columns, size_type first, size_type end, size_type column)
{
    while (first < end) {
        size_type middle = (first + end) / 2;
        if ((size_type)columns[middle] < column) first = middle + 1;
        else end = middle;
    }
    return first;
}

// Threads that an entry takes for so many samples.
__device__ __forceinline__ int lanes_for(int width)
{
    int power = 1;
    while (power < width) power *= 2;
    return THREADS / power == THREADS / width ? power : width;
}

// Where the sum of a column and lane lies. Lines of BANKS sums are turned by a number of columns that says nothing
// of the line's (Fibonacci hashing); where columns do not fill lines they are not.
__device__ __forceinline__ int place_of(int column, int lane, int lanes)
{
    const int plain = column * lanes + lane;
    if (lanes & (lanes - 1)) return plain;
    const int turn = int((unsigned int)plain / BANKS * 0x9E3779B1u >> 27);
    return (plain & -BANKS) | ((plain + turn * lanes) & (BANKS - 1));
}

extern "C" __global__ void product_row_wise(
    const index_t* __restrict__ a_indptr,   // (rows + 1)
    const index_t* __restrict__ a_indices,  // (a_nnz)
    const real* __restrict__ a,             // (a_nnz, batch) if a_batched else (a_nnz)
    const index_t* __restrict__ b_indptr,   // (inner + 1)
    const index_t* __restrict__ b_indices,  // (b_nnz)
    const real* __restrict__ b,             // (b_nnz, batch) if b_batched else (b_nnz)
    const index_t* __restrict__ c_indptr,   // (rows + 1)
    const index_t* __restrict__ c_indices,  // (c_nnz)
    real* __restrict__ c,                   // (c_nnz, batch) output only
    size_type rows, size_type inner, size_type columns, size_type a_nnz, size_type b_nnz,
    size_type c_nnz, size_type batch, int a_batched, int b_batched)
{
    __shared__ real sums[SUMS];
    __shared__ size_type starts[THREADS], ends[THREADS];
    size_type groups = (batch + SAMPLES - 1) / SAMPLES;
    for (size_type item = blockIdx.x; item < rows * groups; item += gridDim.x) {
        size_type row = item / groups, sample = item % groups * SAMPLES;
        // A thread has one sample, and every `together`-th entry; threads that are left over have none.
        const int width = batch - sample < SAMPLES ? batch - sample : SAMPLES;
        const int lanes = lanes_for(width), together = THREADS / lanes, lane = threadIdx.x % lanes;
        const int own = lane < width && threadIdx.x / lanes < together ? threadIdx.x / lanes : SUMS;
        const size_type wide = SUMS / lanes;
        size_type a_end = a_indptr[row + 1], c_end = c_indptr[row + 1];
        for (size_type first = c_indptr[row]; first < c_end;) {
            // The next window begins at the next column that there is.
            size_type window = c_indices[first];
            size_type last = first_from(c_indices, first, c_end, window + wide);
            // Whole lines, whose sums are turned.
            const int used = (int((size_type)c_indices[last - 1] - window + 1) * lanes + BANKS - 1) & -BANKS;
            for (int i = threadIdx.x; i < used; i += blockDim.x) sums[i] = real(0);
            for (size_type base = a_indptr[row]; base < a_end; base += THREADS) {
                size_type count = a_end - base < THREADS ? a_end - base : THREADS;
                __syncthreads();
                for (int i = threadIdx.x; i < count; i += blockDim.x) {
                    size_type middle = a_indices[base + i], end = b_indptr[middle + 1];
                    starts[i] = first_from(b_indices, b_indptr[middle], end, window);
                    ends[i] = first_from(b_indices, starts[i], end, window + wide);
                }
                __syncthreads();
                for (int i = 0; i < count; ++i) {
                    const size_type start = starts[i];
                    const int entries = ends[i] - start;
                    if (entries == 0) continue;
                    if (own < entries) {
                        const real factor = value_at(a, base + i, a_batched, batch, sample + lane);
                        for (int entry = own; entry < entries; entry += together)
                            sums[place_of(int((size_type)b_indices[start + entry] - window), lane, lanes)]
                                += factor * value_at(b, start + entry, b_batched, batch, sample + lane);
                    }
                    __syncthreads();
                }
            }
            for (size_type entry = first + own; entry < last; entry += together)
                c[entry * batch + sample + lane]
                    = sums[place_of(int((size_type)c_indices[entry] - window), lane, lanes)];
            __syncthreads();
            first = last;
        }
    }
}

// ---- product_row_dots ----

// The gradient of C = A B with respect to A, row by row and without a map: an entry (i, k) sums the gradient's row i
// times B's row k. One thread a row and sample, which goes through both rows side by side.
extern "C" __global__ void product_row_dots(
    const index_t* __restrict__ a_indptr,   // (rows + 1)
    const index_t* __restrict__ a_indices,  // (a_nnz)
    real* __restrict__ a,                   // (a_nnz, batch) output only
    const index_t* __restrict__ b_indptr,   // (inner + 1)
    const index_t* __restrict__ b_indices,  // (b_nnz)
    const real* __restrict__ b,             // (b_nnz, batch) if b_batched else (b_nnz)
    const index_t* __restrict__ c_indptr,   // (rows + 1)
    const index_t* __restrict__ c_indices,  // (c_nnz)
    const real* __restrict__ c,             // (c_nnz, batch) if c_batched else (c_nnz): the gradient
    size_type rows, size_type inner, size_type columns, size_type a_nnz, size_type b_nnz, size_type c_nnz,
    size_type batch, int b_batched, int c_batched)
{
    GRID_STRIDE(item, rows * batch) {
        size_type row, sample;
        split(item, batch, &row, &sample);
        for (size_type entry = a_indptr[row]; entry < (size_type)a_indptr[row + 1]; ++entry) {
            const size_type b_end = b_indptr[a_indices[entry] + 1], c_end = c_indptr[row + 1];
            size_type i = c_indptr[row], j = b_indptr[a_indices[entry]];
            real sum = real(0);
            while (i < c_end && j < b_end) {
                const size_type left = c_indices[i], right = b_indices[j];
                if (left == right)
                    sum += value_at(c, i, c_batched, batch, sample) * value_at(b, j, b_batched, batch, sample);
                if (left <= right) ++i;
                if (right <= left) ++j;
            }
            a[entry * batch + sample] = sum;
        }
    }
}

// ---- product_row_sums ----

// The same with respect to B: an entry (k, j) sums A's entries (i, k) times the gradient's entries (i, j), for rising
// rows i. One thread an entry and sample.

// The position of a column among the entries `first` to `end` of a row, and `end` if the row lacks it.
__device__ __forceinline__ size_type position_of(
    const index_t* columns, size_type first, size_type end, size_type column)
{
    const size_type none = end;
    while (first < end) {
        const size_type middle = (first + end) / 2;
        if ((size_type)columns[middle] < column) first = middle + 1;
        else end = middle;
    }
    return first < none && (size_type)columns[first] == column ? first : none;
}

extern "C" __global__ void product_row_sums(
    const index_t* __restrict__ a_indptr,   // (rows + 1)
    const index_t* __restrict__ a_indices,  // (a_nnz)
    const real* __restrict__ a,             // (a_nnz, batch) if a_batched else (a_nnz)
    const index_t* __restrict__ b_indptr,   // (inner + 1)
    const index_t* __restrict__ b_indices,  // (b_nnz)
    real* __restrict__ b,                   // (b_nnz, batch) output only
    const index_t* __restrict__ c_indptr,   // (rows + 1)
    const index_t* __restrict__ c_indices,  // (c_nnz)
    const real* __restrict__ c,             // (c_nnz, batch) if c_batched else (c_nnz): the gradient
    size_type rows, size_type inner, size_type columns, size_type a_nnz, size_type b_nnz, size_type c_nnz,
    size_type batch, int a_batched, int c_batched)
{
    GRID_STRIDE(item, b_nnz * batch) {
        size_type entry, sample, middle = 0, past = inner;
        split(item, batch, &entry, &sample);
        while (middle + 1 < past) {  // the row of B that has the entry
            const size_type half = (middle + past) / 2;
            if ((size_type)b_indptr[half] <= entry) middle = half;
            else past = half;
        }
        real sum = real(0);
        for (size_type row = 0; row < rows; ++row) {
            const size_type a_end = a_indptr[row + 1], c_end = c_indptr[row + 1];
            const size_type i = position_of(a_indices, a_indptr[row], a_end, middle);
            if (i == a_end) continue;
            const size_type j = position_of(c_indices, c_indptr[row], c_end, b_indices[entry]);
            if (j < c_end)
                sum += value_at(a, i, a_batched, batch, sample) * value_at(c, j, c_batched, batch, sample);
        }
        b[item] = sum;
    }
}
