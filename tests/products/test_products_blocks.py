"""Products of blocks, AᵀDA, and masked products against NumPy: any sizes, orders and formats."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from marks import some

import bppsa_cupy as bp

SIZES = st.integers(1, 9)
SEEDS = st.integers(0, 2**32 - 1)
#: Four sizes of blocks; each product of sizes is compiled on its own.
BLOCKS = pytest.mark.parametrize("sizes", some((3, 3, 3, 3), long=[(1, 3, 1, 3), (1, 2, 3, 6)]), ids=str)


def block_matrix(rng, shape, block, density=0.4):
    """A BSR matrix of so many blocks, none of whose values is 0, in a random order of the blocks of a row."""
    pattern = sp.csr_array(rng.random(shape) < density)
    for i in range(shape[0]):
        rng.shuffle(pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]])
    data = rng.uniform(1, 2, (pattern.nnz, *block))
    size = shape[0] * block[0], shape[1] * block[1]
    return sp.bsr_array((data, pattern.indices, pattern.indptr), shape=size, blocksize=block)


def in_form(matrix, form):
    if form == "bsr":
        return matrix
    csr = sp.csr_array(matrix)
    csr.sum_duplicates()
    return csr.asformat(form)


def assert_product(product, expected, *operands):
    """Values, batches, bound calls and a plan that was saved, against a dense matrix."""
    result = product(*operands)
    matrix = product.to_scipy(result)
    assert matrix.format == product.out_format and matrix.has_sorted_indices
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-12, atol=1e-12)
    first, *others = (getattr(operand, "data", operand) for operand in operands)
    first = np.asarray(first).reshape(-1)
    others = [np.asarray(other).reshape(-1) for other in others]
    batch = product(np.stack([first, 3 * first], -1), *others)
    power = 9 if product.multiplications[-1].left < 0 else 3
    np.testing.assert_allclose(batch, np.stack([result, power * result], -1), rtol=1e-12, atol=1e-12)
    out = np.empty_like(result)
    product.bind(first, *others, out=out)()
    np.testing.assert_array_equal(out, result)


@BLOCKS
@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 3), min_size=3, max_size=4),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.sampled_from(["bsr", "csr", "csc", "coo"]),
    st.sampled_from([None, "csr", "csc"]),
    SEEDS,
)
@example([3, 3, 3], [1, 1, 1, 1], "bsr", None, 0)
@example([3, 3, 3], [0, 0, 0, 0], "bsr", None, 0)
def test_blocks_of_any_size_and_order(sizes, places, counts, form, out_format, seed):
    rng, blocks = np.random.default_rng(seed), [sizes[place] for place in places]
    chain = [
        in_form(block_matrix(rng, counts[k : k + 2], tuple(blocks[k : k + 2])), form)
        for k in range(len(blocks) - 1)
    ]
    expected = chain[0].toarray()
    for matrix in chain[1:]:
        expected = expected @ matrix.toarray()
    assert_product(bp.plan_product(*chain, out_format=out_format), expected, *chain)


def test_bsr_in_is_bsr_out_and_csr_is_recognised():
    rng = np.random.default_rng(0)
    a, b = block_matrix(rng, (9, 8), (3, 2)), block_matrix(rng, (8, 9), (2, 6))
    product = bp.plan_product(a, b)
    assert product.multiplications[0].block == (3, 2, 6)
    assert product.to_scipy(np.zeros(product.pattern.nnz)).blocksize == (3, 6)
    a, b = (in_form(block_matrix(rng, (20, 20), (6, 6), 0.7), "csr") for _ in range(2))
    assert bp.plan_product(a, b).multiplications[0].block == (6, 6, 6)


@BLOCKS
@settings(max_examples=25)
@given(
    st.tuples(st.integers(0, 6), st.integers(0, 6)),
    st.tuples(st.integers(0, 2), st.integers(0, 3)),
    st.sampled_from(["bsr", "csr", "csc"]),
    st.sampled_from(["none", "diagonal", "blocks", "general"]),
    st.sampled_from(["both", "upper", "lower"]),
    st.sampled_from([None, "csr", "csc"]),
    SEEDS,
)
@example((1, 1), (0, 0), "csr", "diagonal", "upper", None, 0)
@example((0, 0), (1, 2), "bsr", "blocks", "lower", "csc", 0)
def test_gram(sizes, shape, places, form, weights, triangle, out_format, seed):
    rng, block = np.random.default_rng(seed), tuple(sizes[place] for place in places)
    a = in_form(block_matrix(rng, shape, block), form)
    size = a.shape[0]
    d = {
        "none": None,
        "diagonal": rng.uniform(1, 2, size),
        "blocks": block_matrix(rng, (shape[0],) * 2, (block[0],) * 2),
        "general": sp.csr_array(rng.random((size, size)) * (rng.random((size, size)) < 0.4)),
    }[weights]
    middle = np.eye(size) if d is None else np.diag(d) if weights == "diagonal" else d.toarray()
    expected = a.toarray().T @ middle @ a.toarray()
    expected = {"both": lambda x: x, "upper": np.triu, "lower": np.tril}[triangle](expected)
    argument = {"none": False, "diagonal": True}.get(weights, d)
    product = bp.plan_gram(a, argument, triangle=triangle, out_format=out_format)
    assert_product(product, expected, a, *([] if d is None else [d]))


@settings(max_examples=25)
@given(SIZES, SIZES, SIZES, st.sampled_from(["csr", "csc", "coo"]), SEEDS)
@example(1, 1, 1, "csr", 0)
def test_masked(rows, inner, columns, form, seed):
    rng = np.random.default_rng(seed)
    shapes = (rows, inner), (inner, columns), (rows, columns)
    a, b, mask = (
        sp.csr_array(np.where(rng.random(s) < 0.5, rng.uniform(1, 2, s), 0)).asformat(form) for s in shapes
    )
    product = bp.plan_product(a, b, mask=mask)
    assert product.pattern == bp.Pattern.from_scipy(mask)
    assert_product(product, (a.toarray() @ b.toarray()) * (mask.toarray() != 0), a, b)


def test_masked_chain_stays_masked_in_a_file(tmp_path):
    """Both products have the same factors' patterns; only the last one is masked."""
    rng = np.random.default_rng(0)
    a = sp.csr_array(sp.block_diag([rng.random((5, 5)), rng.random((3, 3))]))
    mask = bp.Pattern.diagonal(8)
    product = bp.plan_product(a, a, a, mask=mask)
    product.save(tmp_path / "p.h5")
    loaded = bp.PlannedProduct.load(tmp_path / "p.h5")
    expected = np.diag(np.linalg.matrix_power(a.toarray(), 3))
    np.testing.assert_allclose(loaded(a, a, a), expected, rtol=1e-12)


@pytest.mark.parametrize("triangle", ["both", "upper"])
@pytest.mark.parametrize("form", ["bsr", "csr", "csc"])
def test_saved_gram(form, triangle, tmp_path):
    rng = np.random.default_rng(3)
    a = in_form(block_matrix(rng, (12, 5), (3, 3), 0.6), form)
    product = bp.plan_gram(a, weights=True, triangle=triangle)
    product.save(tmp_path / "p.h5")
    loaded = bp.PlannedProduct.load(tmp_path / "p.h5")
    weights = rng.random(36)
    np.testing.assert_array_equal(loaded(a.data, weights), product(a.data, weights))
    assert loaded.out_format == product.out_format and loaded.pattern == product.pattern


def test_blocks_on_every_device(device, dtype, rng):
    a = block_matrix(rng, (4, 5), (3, 3))
    for triangle in ("both", "upper"):
        product = bp.plan_gram(a, weights=True, triangle=triangle, out_format="csr", device=device)
        expected = a.toarray().T @ np.diag(np.arange(12.0)) @ a.toarray()
        for batch in ((), (3,)):
            values = np.broadcast_to(a.data.reshape(-1, *[1] * len(batch)), (a.data.size, *batch))
            result = device.to_host(product(values.astype(dtype), np.arange(12, dtype=dtype)))
            got = product.to_scipy(result).toarray()
            wanted = expected if triangle == "both" else np.triu(expected)
            np.testing.assert_allclose(got, wanted, rtol=1e-5)


# ---- recipes ----


def test_gauss_newton():
    """Fit of poses to relative measurements: the loop plans JᵀJ once."""
    rng = np.random.default_rng(0)
    n, size = 12, 3
    edges = np.array([(i, i + 1) for i in range(n - 1)] + [(0, 5), (3, 9), (2, 11)])
    truth = rng.standard_normal((n, size))

    def relative(x):
        return (2 * x + np.sin(x))[edges[:, 1]] - (2 * x + np.sin(x))[edges[:, 0]]

    indptr = np.append(2 * np.arange(len(edges) + 1), 2 * len(edges) + 1)
    indices = np.append(edges.ravel(), 0)
    jacobian = sp.bsr_array(
        (np.zeros((indices.size, size, size)), indices, indptr), shape=(size * (len(edges) + 1), size * n)
    )
    gram = bp.plan_gram(jacobian, out_format="csc")
    values = np.empty(gram.pattern.nnz)
    compute = gram.bind(jacobian.data, out=values)
    x = truth + 0.1 * rng.standard_normal((n, size))
    for _ in range(8):
        residual = np.concatenate([(relative(x) - relative(truth)).ravel(), x[0] - truth[0]])
        slopes = np.array([np.diag(2 + np.cos(row)) for row in x])
        jacobian.data[:-1:2], jacobian.data[1:-1:2] = -slopes[edges[:, 0]], slopes[edges[:, 1]]
        jacobian.data[-1] = np.eye(size)
        compute()
        np.testing.assert_allclose(
            gram.to_scipy(values).toarray(), (jacobian.T @ jacobian).toarray(), atol=1e-12
        )
        x -= sp.linalg.splu(gram.to_scipy(values)).solve(jacobian.T @ residual).reshape(n, size)
    np.testing.assert_allclose(x, truth, atol=1e-9)


def test_hierarchy_of_galerkin_products():
    """The fine matrix changes its values, the patterns of all levels stay."""
    rng = np.random.default_rng(0)
    fine = sp.csr_array(sp.diags_array([-np.ones(80), 2 * np.ones(81), -np.ones(80)], offsets=[-1, 0, 1]))
    levels, plans, matrix = [], [], fine
    while matrix.shape[0] > 3:
        n = matrix.shape[0]
        p = sp.csr_array(abs(matrix) @ sp.csr_array((np.ones(n), np.arange(n) // 3, np.arange(n + 1))))
        plans.append(bp.plan_product(p.T, matrix, p, out_format="csr"))
        levels.append(p)
        matrix = plans[-1].to_scipy(plans[-1](p.T, matrix, p))
    for _ in range(3):
        fine.data[:] = rng.standard_normal(fine.nnz)
        values, expected = fine.data, fine
        for p, plan in zip(levels, plans, strict=True):
            values, expected = plan(p.data, values, p.data), p.T @ expected @ p
            np.testing.assert_allclose(plan.to_scipy(values).toarray(), expected.toarray(), atol=1e-10)
    assert len(plans) == 3
