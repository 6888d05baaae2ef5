"""Pairs of sparse matrices that solvers multiply: stencils, Galerkin products, random ones, blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse
from scipy.sparse import csr_array

#: Rows and columns of an aggregate of grid points.
AGGREGATE = 3


def laplacian(side: int) -> csr_array:
    """The 5-point Laplacian on a square grid of `side` points a side."""
    ones = np.ones(side)
    line = scipy.sparse.dia_array(([-ones, 2 * ones, -ones], [-1, 0, 1]), shape=(side, side))
    unit = scipy.sparse.eye_array(side)
    return csr(scipy.sparse.kron(line, unit) + scipy.sparse.kron(unit, line))


def smoothed_prolongation(operator: csr_array, side: int) -> csr_array:
    """P = (I - 2/3 D⁻¹ A) T, where T has a column for each square of AGGREGATE by AGGREGATE grid points
    (smoothed aggregation: Vaněk, Mandel and Brezina 1996)."""
    rows, columns = np.divmod(np.arange(side * side), side)
    across = -(-side // AGGREGATE)
    places = rows // AGGREGATE * across + columns // AGGREGATE
    indptr = np.arange(side * side + 1)
    tentative = csr_array((np.ones(side * side), places, indptr), shape=(side * side, across * across))
    weights = scipy.sparse.diags_array(2 / 3 / operator.diagonal())
    return csr(tentative - weights @ (operator @ tentative))


def csr(matrix: scipy.sparse.sparray) -> csr_array:
    """In CSR with sorted rows."""
    result = csr_array(matrix)
    result.sum_duplicates()
    return result


def _squared_laplacian(side: int) -> tuple[csr_array, csr_array]:
    a = laplacian(side)
    return a, a


def _galerkin_right(side: int) -> tuple[csr_array, csr_array]:
    a = laplacian(side)
    return a, smoothed_prolongation(a, side)


def _galerkin_left(side: int) -> tuple[csr_array, csr_array]:
    a, p = _galerkin_right(side)
    return csr(p.T), csr(a @ p)


def _random(side: int) -> tuple[csr_array, csr_array]:
    generator, rows = np.random.default_rng(0), side * side // 4
    both = [
        scipy.sparse.random_array((rows, rows), density=min(1.0, 10 / rows), rng=generator) for _ in range(2)
    ]
    return csr(both[0]), csr(both[1])


def _blocks(side: int) -> tuple[csr_array, csr_array]:
    generator, blocks = np.random.default_rng(0), max(1, side * side // 16)
    both = [
        scipy.sparse.kron(
            scipy.sparse.random_array((blocks, blocks), density=min(1.0, 3 / blocks), rng=generator),
            np.ones((4, 4)),
        )
        for _ in range(2)
    ]
    return csr(both[0]), csr(both[1])


#: A case's name -> its two factors, for a grid of so many points a side; the others have sizes like it.
CASES: dict[str, Callable[[int], tuple[csr_array, csr_array]]] = {
    "5-point Laplacian squared": _squared_laplacian,
    "Galerkin A·P": _galerkin_right,
    "Galerkin R·(A·P)": _galerkin_left,
    "random, 10 entries a row": _random,
    "4 by 4 blocks, 3 a row": _blocks,
}
