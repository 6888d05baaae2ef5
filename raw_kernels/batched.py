"""The innermost loops of the scan's twins: one entry of a sparse matrix, all samples of the batch.

Values of a matrix are batch innermost: entry i of sample s is `values[i * batch + s]` where the matrix
is batched, and `values[i]` where one set of values serves every sample. The branch on that is taken
once an entry, so that the loop over samples vectorises.
"""

import numba


@numba.njit(nogil=True)
def multiply_into(out, o, a, i, a_batched, b, j, b_batched, batch):
    """out[o] = a[i] * b[j] for every sample."""
    o *= batch
    if a_batched and b_batched:
        i *= batch
        j *= batch
        for s in range(batch):
            out[o + s] = a[i + s] * b[j + s]
    elif a_batched:
        i *= batch
        value = b[j]
        for s in range(batch):
            out[o + s] = a[i + s] * value
    elif b_batched:
        j *= batch
        value = a[i]
        for s in range(batch):
            out[o + s] = value * b[j + s]
    else:
        value = a[i] * b[j]
        for s in range(batch):
            out[o + s] = value


@numba.njit(nogil=True)
def multiply_add(out, o, a, i, a_batched, b, j, b_batched, batch):
    """out[o] += a[i] * b[j] for every sample."""
    o *= batch
    if a_batched and b_batched:
        i *= batch
        j *= batch
        for s in range(batch):
            out[o + s] += a[i + s] * b[j + s]
    elif a_batched:
        i *= batch
        value = b[j]
        for s in range(batch):
            out[o + s] += a[i + s] * value
    elif b_batched:
        j *= batch
        value = a[i]
        for s in range(batch):
            out[o + s] += value * b[j + s]
    else:
        value = a[i] * b[j]
        for s in range(batch):
            out[o + s] += value
