"""Arguments for the kernels of the scan: products by kind, and a matrix times vectors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import scipy.sparse
from kernel_cases import Case, case, cases_of

BATCHES = (1, 3, 35)
FLAGS = tuple(itertools.product((0, 1), repeat=2))


def random_pattern(
    rng: np.random.Generator, rows: int, columns: int, density: float
) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(rng.random((rows, columns)) < density, dtype=np.int64)


def selection(rng: np.random.Generator, rows: int, columns: int) -> scipy.sparse.csr_array:
    """At most one entry a row."""
    chosen = np.zeros((rows, columns), dtype=np.int64)
    chosen[np.arange(rows), rng.integers(0, columns, rows)] = rng.random(rows) < 0.8
    return scipy.sparse.csr_array(chosen)


def full_rows(rng: np.random.Generator, rows: int, columns: int) -> scipy.sparse.csr_array:
    """Every row empty or full."""
    return scipy.sparse.csr_array(
        (rng.random(rows) < 0.6)[:, None] * np.ones((rows, columns), dtype=np.int64)
    )


@cases_of("csr_spmv", "product_scale_rows", "product_scale_columns")
def one_matrix(rng: np.random.Generator) -> Iterator[Case]:
    for rows, columns, density in ((1, 1, 1.0), (7, 5, 0.5), (40, 33, 0.2), (3, 4, 0.0), (0, 2, 0.0)):
        matrix = random_pattern(rng, rows, columns, density)
        arrays = {"indptr": matrix.indptr, "indices": matrix.indices}
        for batch, (first, second) in itertools.product(BATCHES, FLAGS):
            yield case(
                arrays, rows=rows, columns=columns, nnz=matrix.nnz, batch=batch, batched=first, affine=second,
                a_batched=first, b_batched=second,
            )  # fmt: skip


@cases_of("csr_sddmm")
def products_of_rows(rng: np.random.Generator) -> Iterator[Case]:
    for (nnz, rows, columns), inner in itertools.product(((1, 1, 1), (0, 2, 3), (65, 7, 5)), (0, 1, 5, 37)):
        places = {"x_rows": rng.integers(0, rows, nnz), "y_rows": rng.integers(0, columns, nnz)}
        yield case(places, rows=rows, columns=columns, nnz=nnz, inner=inner)


@cases_of("product_dense")
def dense_blocks(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns in ((1, 1, 1), (5, 7, 3), (3, 0, 2), (0, 2, 2), (4, 3, 0), (17, 9, 19)):
        for batch, (first, second) in itertools.product(BATCHES, FLAGS):
            yield case(
                rows=rows, inner=inner, columns=columns, batch=batch, a_batched=first, b_batched=second
            )


@cases_of("product_row_wise", "product_terms")
def general_products(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns, density in ((1, 1, 1, 1.0), (7, 5, 6, 0.5), (20, 30, 25, 0.1), (3, 4, 2, 0.0)):
        a, b = random_pattern(rng, rows, inner, density), random_pattern(rng, inner, columns, density)
        yield from product_of(a, b)
    # More columns than a block has sums of at a time, and more entries of A's row than it has threads.
    yield from product_of(random_pattern(rng, 2, 3, 0.7), random_pattern(rng, 3, 1700, 0.005))
    yield from product_of(random_pattern(rng, 2, 300, 0.8), random_pattern(rng, 300, 5, 0.2))


@cases_of("product_row_dots", "product_row_sums")
def gradients_of_products(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns, density in ((1, 1, 1, 1.0), (7, 5, 6, 0.5), (33, 30, 25, 0.2), (3, 4, 2, 0.0)):
        a, b = random_pattern(rng, rows, inner, density), random_pattern(rng, inner, columns, density)
        for example in product_of(a, b):
            for batched in (0, 1):
                yield case(example.arrays, **example.scalars | {"c_batched": batched})


@cases_of("product_pairs")
def products_of_one_sample(rng: np.random.Generator) -> Iterator[Case]:
    """Entries of one to hundreds of terms, and fewer entries than are summed at a time."""
    for rows, inner, columns, density in ((1, 1, 1, 1.0), (2, 2, 1, 1.0), (9, 300, 7, 0.6), (3, 4, 2, 0.0)):
        a, b = random_pattern(rng, rows, inner, density), random_pattern(rng, inner, columns, density)
        example = next(product_of(a, b))
        pointer, pairs = example.arrays["term_ptr"], example.arrays["a_position"] << 32
        pairs[pointer[1:] - 1] |= -(2**63)
        pairs |= example.arrays["b_position"]
        yield case({"term_ptr": pointer, "pairs": pairs}, **example.scalars)


@cases_of("product_blocks")
def products_of_blocks(rng: np.random.Generator) -> Iterator[Case]:
    """Blocks of C lie one after another, by rows or by columns; each size is a twin of its own."""
    for rows, inner, columns, transposed in ((3, 2, 5, 0), (6, 1, 2, 1)):
        for size, density in ((1, 1.0), (6, 0.4), (0, 0.0)):
            a, b = random_pattern(rng, size, size, density), random_pattern(rng, size, size, density)
            for example in product_of(a, b):
                sizes = {f"{name}_blocks": example.scalars[f"{name}_nnz"] for name in "abc"}
                places = {
                    "c_start": np.arange(sizes["c_blocks"]) * rows * columns,
                    "c_stride": np.full(sizes["c_blocks"], rows if transposed else columns),
                }
                yield case(
                    example.arrays | places, **example.scalars | sizes | {"rows": rows, "inner": inner}
                    | {"columns": columns, "a_transposed": transposed, "c_transposed": transposed},
                )  # fmt: skip


@cases_of("product_reorder")
def reordered(rng: np.random.Generator) -> Iterator[Case]:
    for (sources, entries), batch in itertools.product(((1, 0), (1, 1), (5, 7), (40, 257)), BATCHES):
        positions = rng.integers(0, sources, entries)
        yield case({"positions": positions}, a_nnz=sources, entries=entries, batch=batch)


@cases_of("product_select_rows")
def selected_rows(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns, density in ((1, 1, 1, 1.0), (7, 5, 6, 0.5), (40, 30, 25, 0.1), (3, 4, 2, 0.0)):
        yield from product_of(selection(rng, rows, inner), random_pattern(rng, inner, columns, density))


@cases_of("product_full_rows")
def products_of_full_rows(rng: np.random.Generator) -> Iterator[Case]:
    for rows, inner, columns, density in ((1, 1, 1, 1.0), (7, 5, 6, 0.5), (40, 30, 25, 0.1), (3, 4, 2, 0.0)):
        yield from product_of(random_pattern(rng, rows, inner, density), full_rows(rng, inner, columns))


def product_of(a: scipy.sparse.csr_array, b: scipy.sparse.csr_array) -> Iterator[Case]:
    """Patterns of a product and its term list, from its definition: entry by entry."""
    c = scipy.sparse.csr_array(a @ b)
    c.sort_indices()
    pairs: list[list[tuple[int, int]]] = [[] for _ in range(c.nnz)]
    for row in range(a.shape[0]):
        places = {column: place for place, column in enumerate(c.indices[c.indptr[row] : c.indptr[row + 1]])}
        for i in range(a.indptr[row], a.indptr[row + 1]):
            middle = a.indices[i]
            for j in range(b.indptr[middle], b.indptr[middle + 1]):
                pairs[c.indptr[row] + places[b.indices[j]]].append((i, j))
    terms = np.array([pair for entry in pairs for pair in entry], dtype=np.int64).reshape(-1, 2)
    arrays = {
        "a_indptr": a.indptr, "a_indices": a.indices, "b_indptr": b.indptr, "b_indices": b.indices,
        "c_indptr": c.indptr, "c_indices": c.indices,
        "term_ptr": np.cumsum([0, *map(len, pairs)]), "a_position": terms[:, 0], "b_position": terms[:, 1],
    }  # fmt: skip
    for batch, (first, second) in itertools.product(BATCHES, FLAGS):
        yield case(
            arrays, rows=a.shape[0], inner=a.shape[1], columns=b.shape[1], a_nnz=a.nnz, b_nnz=b.nnz,
            c_nnz=c.nnz, terms=len(terms), batch=batch, a_batched=first, b_batched=second,
        )  # fmt: skip
