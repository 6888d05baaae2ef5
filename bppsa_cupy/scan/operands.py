"""What a caller gives as a sparse matrix: its pattern and values, whatever it came as."""

from __future__ import annotations

from typing import Any

import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.scan.launches import Matrix


def matrix_of(given: Any) -> Matrix | None:
    """Pattern and values of a JacobianRecord, a (Pattern, values) pair or a sparse matrix of SciPy or cupyx;
    None where it is none of them.

    A sparse matrix of any format is brought to CSR with rising columns, duplicates summed, as SciPy does;
    stored zeros stay. One of cupyx that has this form keeps its values on the GPU. The values of a pair are
    as they were given: nothing is checked of them. Raises ShapeError where the matrix has not two axes.
    """
    if isinstance(given, JacobianRecord):
        return Matrix(given.pattern, given.data)
    if isinstance(given, (tuple, list)):
        is_pair = len(given) == 2 and isinstance(given[0], Pattern)
        return Matrix(given[0], given[1]) if is_pair else None
    host = on_host(given)
    if host is None:
        return None
    csr = scipy.sparse.csr_array(host, copy=True)
    in_order = host.format == "csr" and csr.has_canonical_format
    csr.sum_duplicates()
    return Matrix(Pattern(csr.shape, csr.indptr, csr.indices), given.data if in_order else csr.data)


def on_host(given: Any) -> Any:
    """A sparse matrix of SciPy or cupyx as one of SciPy; None where it is none of them."""
    if scipy.sparse.issparse(given):
        return given
    if type(given).__module__.startswith("cupyx."):
        return given.get()
    return None
