"""What the symbolic product is held against: SciPy, and the kinds' definitions read literally in NumPy."""

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern


def random_pattern(generator, rows, columns, density):
    """A pattern of random positions; empty rows and columns may occur."""
    return Pattern.from_scipy(scipy.sparse.csr_array(generator.random((rows, columns)) < density))


def random_selection(generator, rows, columns):
    """At most one entry a row."""
    dense = np.zeros((rows, columns), bool)
    if columns:
        dense[np.arange(rows), generator.integers(0, columns, rows)] = generator.random(rows) < 0.8
    return Pattern.from_scipy(scipy.sparse.csr_array(dense))


def full_rows(generator, rows, columns):
    """Rows that are empty or full."""
    full = np.broadcast_to(generator.random((rows, 1)) < 0.6, (rows, columns))
    return Pattern.from_scipy(scipy.sparse.csr_array(full))


def reference_pattern(a, b):
    """Of A·B by SciPy with all values one."""
    return Pattern.from_scipy(a.to_scipy() @ b.to_scipy())


def evaluate(product, a, b):
    """C's values (nnz,) from A's and B's, by the definition of the product's kind alone."""
    pa, pb, pc, maps = product.a, product.b, product.pattern, product.maps
    c = np.zeros(pc.nnz)
    if product.kind == "scale_rows":
        return a[pb.rows()] * b
    if product.kind == "scale_columns":
        return a * b[pa.indices]
    if product.kind == "dense":
        return (a.reshape(pa.shape) @ b.reshape(pb.shape)).ravel()
    if product.kind == "terms":
        for k in range(pc.nnz):
            terms = slice(maps["term_ptr"][k], maps["term_ptr"][k + 1])
            c[k] = a[maps["a_position"][terms]] @ b[maps["b_position"][terms]]
        return c
    columns = np.full(pb.shape[1], -1)
    for i in range(pa.shape[0]):
        row = slice(pc.indptr[i], pc.indptr[i + 1])
        columns[pc.indices[row]] = np.arange(row.start, row.stop)
        for p in range(pa.indptr[i], pa.indptr[i + 1]):
            terms = slice(pb.indptr[pa.indices[p]], pb.indptr[pa.indices[p] + 1])
            c[columns[pb.indices[terms]]] += a[p] * b[terms]
    return c
