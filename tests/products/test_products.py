"""Planned products against SciPy's `@`: any structure, any number of samples, on every device."""

import functools
import operator
import threading
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st
from marks import some_rows
from product_cases import STRUCTURES, factors_of, values_of
from symbolic_oracle import random_pattern

import bppsa_cupy as bp


def reference(patterns, values, sample):
    """The dense product of one sample, in float64, and that of ones at all entries: the terms of each."""
    product = bound = None
    for pattern, data in zip(patterns, values, strict=True):
        column = (data[:, sample] if data.ndim == 2 else data).astype(np.float64)
        dense, ones = pattern.to_scipy(column).toarray(), pattern.to_scipy().toarray()
        product, bound = (dense, ones) if product is None else (product @ dense, bound @ ones)
    return product, bound


def assert_product(product, patterns, values, result, tolerance):
    """Every sample of a result, and the pattern of the product."""
    result = np.asarray(result)
    for sample in range(result.shape[1] if result.ndim == 2 else 1):
        expected, bound = reference(patterns, values, sample)
        got = product.to_scipy(result, sample)
        np.testing.assert_allclose(
            got.toarray(), expected, rtol=0, atol=tolerance * max(1, bound.max(initial=0))
        )
        assert product.pattern == bp.Pattern.from_scipy(scipy.sparse.csr_array(bound))


@settings(max_examples=120)
@given(
    st.lists(st.sampled_from(list(STRUCTURES)), min_size=2, max_size=4),
    st.integers(0, 9),
    st.sampled_from([None, 0, 1, 2, 17]),
    st.integers(0, 2**32 - 1),
)
@example(["general", "general"], 0, None, 0)
@example(["general", "general"], 1, 17, 3)
def test_any_structure_and_number_of_samples(structures, size, batch, seed):
    rng = np.random.default_rng(seed)
    patterns = factors_of(rng, structures, size)
    values = values_of(rng, patterns, batch)
    product = bp.plan_product(*patterns)
    for operands in (values, list(zip(patterns, values, strict=True))):
        result = product(*operands)
        batched = any(data.ndim == 2 for data in values)
        assert result.shape == (product.pattern.nnz, *((batch,) if batched else ()))
        assert_product(product, patterns, values, result, 1e-12)


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_on_every_device(device, dtype, rng, batch):
    patterns = [random_pattern(rng, *shape, 0.4) for shape in ((5, 9), (9, 9), (9, 4))]
    values = values_of(rng, patterns, batch, dtype)
    product = bp.plan_product(*patterns, device=device)
    result = product(*values)
    assert result.dtype == dtype and isinstance(result, device.xp.ndarray)
    tolerance = {"float32": 1e-6, "float64": 1e-14}[dtype.name]
    assert_product(product, patterns, values, device.to_host(result), tolerance)
    out = device.empty(result.shape, dtype)
    assert product(*values, out=out) is out
    np.testing.assert_array_equal(device.to_host(out), device.to_host(result))


def test_the_order_of_the_fewest_multiply_adds():
    tall, flat = bp.Pattern.dense(40, 2), bp.Pattern.dense(2, 40)
    product = bp.plan_product(tall, flat, tall)
    assert [(made.left, made.right) for made in product.multiplications] == [(1, 2), (0, 3)]
    assert product.multiply_adds == 2 * 2 * 2 * 40
    product = bp.plan_product(flat, tall, flat)
    assert [(made.left, made.right) for made in product.multiplications] == [(0, 1), (3, 2)]
    chain = bp.plan_product(tall, flat, tall, flat, tall)
    assert chain.multiply_adds == 2 * (2 * 40 * 2) + 2 * 2 * 2 + 40 * 2 * 2


def test_a_useless_product_beyond_the_memory_is_never_made(rng):
    """U·V has 2**36 entries, V·U 4."""
    u, v = bp.Pattern.dense(2**18, 2), bp.Pattern.dense(2, 2**18)
    product = bp.plan_product(u, v, u)
    assert [(made.left, made.right) for made in product.multiplications] == [(1, 2), (0, 3)]
    left, middle, right = (rng.standard_normal(2**19) for _ in range(3))
    expected = left.reshape(-1, 2) @ (middle.reshape(2, -1) @ right.reshape(-1, 2))
    np.testing.assert_allclose(product(left, middle, right), expected.ravel(), atol=1e-9)
    product = bp.plan_product(v, u, v, u, v)
    assert product.multiply_adds == 2 * 4 * 2**18 + 2**3 + 4 * 2**18


def random_chain(rng):
    sizes = rng.integers(50, 400, 9)
    return [scipy.sparse.random_array((m, n), density=3 / n, rng=rng) for m, n in pairwise(sizes)]


def fewest_multiply_adds(chain):
    """Of all orders, by the products of all runs."""
    n = len(chain)
    ones = {
        (k, k + 1): scipy.sparse.csr_array(factor.astype(bool).astype(int)) for k, factor in enumerate(chain)
    }
    work = dict.fromkeys(ones, 0)
    for length in range(2, n + 1):
        for begin in range(n + 1 - length):
            end = begin + length
            work[begin, end] = min(
                work[begin, cut] + work[cut, end] + (ones[begin, cut] @ ones[cut, end]).sum()
                for cut in range(begin + 1, end)
            )
            ones[begin, end] = (ones[begin, end - 1] @ ones[end - 1, end]).astype(bool).astype(int)
    return work[0, n]


def test_chains_take_about_the_fewest_multiply_adds(rng):
    chain = [scipy.sparse.csr_array(matrix) for matrix in random_chain(rng)]
    product = bp.plan_product(*chain)
    assert len(product.multiplications) == len(chain) - 1
    assert product.multiply_adds <= 1.05 * fewest_multiply_adds(chain)
    values = [matrix.data for matrix in chain]
    expected = functools.reduce(operator.matmul, chain)
    assert abs(product.to_scipy(product(*values)) - expected).max() <= 1e-12 * abs(expected).max()


def test_cancelled_entries_and_stored_zeros_stay():
    a = scipy.sparse.csr_array(np.array([[1.0, 1.0], [0.0, 2.0]]))
    b = scipy.sparse.csr_array((np.array([3.0, -3.0, 0.0]), [0, 0, 1], [0, 1, 3]), shape=(2, 2))
    product = bp.plan_product(a, b)
    assert product(a, b).tolist() == [0.0, 0.0, -6.0, 0.0]
    assert product.to_scipy(product(a, b)).nnz == 4


def test_a_matrix_of_any_format_is_brought_to_the_planned_order(rng):
    a = scipy.sparse.random_array((7, 6), density=0.5, rng=rng, format="csr")
    b = scipy.sparse.random_array((6, 5), density=0.5, rng=rng, format="csr")
    product = bp.plan_product(a, b)
    expected = product(a.data, b.data)
    coo = a.tocoo()
    halves = (np.concatenate([coo.data / 2] * 2), (np.tile(coo.row, 2), np.tile(coo.col, 2)))
    duplicated = scipy.sparse.coo_array(halves, shape=a.shape)
    order = np.lexsort((-coo.col, coo.row))
    unsorted = scipy.sparse.csr_array((coo.data[order], coo.col[order], a.indptr), shape=a.shape)
    assert not unsorted.has_sorted_indices
    for matrix in (a, a.tocsc(), unsorted, duplicated, scipy.sparse.csr_matrix(a)):
        np.testing.assert_allclose(product(matrix, b), expected, rtol=1e-14)
    record = bp.JacobianRecord(0, "Matrix", bp.Pattern.from_scipy(a), np.stack([a.data, 2 * a.data], 1))
    np.testing.assert_allclose(product(record, b), np.stack([expected, 2 * expected], 1), rtol=1e-14)
    assert bp.plan_product(record, b).pattern == product.pattern


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    some_rows(
        ("fd", "d"), ("df", "d"), ("dd", "d"), ("ed", "d"), long=[("ff", "f"), ("ef", "f"), ("ee", "f")]
    ),
)
def test_dtypes_are_promoted(dtypes, expected):
    pattern = bp.Pattern.diagonal(2)
    result = bp.plan_product(pattern, pattern)(*(np.ones(2, dtype) for dtype in dtypes))
    assert result.dtype == np.dtype(expected) and result.tolist() == [1, 1]


@pytest.mark.parametrize("other", ["same", np.float32, np.float16, np.float64])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("dtype", [np.bool_, *np.typecodes["AllInteger"]])
def test_integers_are_computed_in_float64(dtype, side, other):
    dtype = np.dtype(dtype)
    other = dtype if other == "same" else np.dtype(other)
    largest = 1 if dtype.kind == "b" else min(np.iinfo(dtype).max, 2**15 + 1)
    integers = np.array([largest, 1, largest], dtype)
    others = np.array([min(largest, 2047), 1, 1], other)
    left, right = (integers, others) if side == 0 else (others, integers)
    product = bp.plan_product(bp.Pattern.dense(1, 3), bp.Pattern.dense(3, 1))
    (result,) = product(left, right)
    assert result.dtype == np.float64
    assert result == sum(int(a) * int(b) for a, b in zip(integers, others, strict=True))
    if other != np.float16:  # SciPy has no sparse matrices of float16
        csr, column = scipy.sparse.csr_array(left[None]), scipy.sparse.csr_array(right[:, None])
        assert product(csr, column).tolist() == [result]


def test_a_bound_call_sees_new_values(device, rng):
    patterns = [random_pattern(rng, *shape, 0.5) for shape in ((4, 6), (6, 6), (6, 3))]
    product = bp.plan_product(*patterns, device=device)
    arrays = [device.zeros((pattern.nnz, 3), np.float64) for pattern in patterns]
    out = device.empty((product.pattern.nnz, 3), np.float64)
    call = product.bind(*arrays, out=out)
    for _ in range(3):
        values = [rng.standard_normal(array.shape) for array in arrays]
        for array, new in zip(arrays, values, strict=True):
            array[...] = device.asarray(new)
        call()
        assert_product(product, patterns, values, device.to_host(out), 1e-14)


def test_calls_at_the_same_time(rng):
    a = random_pattern(rng, 60, 60, 0.3)
    product = bp.plan_product(a, a, a)
    data = [rng.standard_normal(a.nnz) for _ in range(4)]
    expected, wrong = [product(x, x, x) for x in data], []

    def work(k):
        for _ in range(20):
            wrong.append(not np.array_equal(product(data[k], data[k], data[k]), expected[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 80 and not any(wrong)
