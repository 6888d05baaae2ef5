"""Differentiable products in PyTorch: derivatives of both orders, batches and torch.func."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from marks import some

import bppsa_cupy as bp
import bppsa_cupy.torch as bt

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own


def matrix(rows: int, columns: int, form: str = "csr", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    block = (2, 2) if form == "bsr" else (1, 1)
    result = sp.csr_array(np.kron(rng.random((rows // block[0], columns // block[1])) < 0.5, np.ones(block)))
    result.data[:] = rng.standard_normal(result.nnz)
    return sp.bsr_array(result, blocksize=block) if form == "bsr" else result.asformat(form)


def dense(sparse: Any, values: torch.Tensor) -> torch.Tensor:
    """The matrix with these values (…, nnz), by PyTorch."""
    numbered = sparse.copy()
    numbered.data = np.arange(1, sparse.data.size + 1).reshape(sparse.data.shape)
    places = torch.from_numpy(np.asarray(numbered.toarray(), np.int64))
    padded = torch.cat([torch.zeros_like(values[..., :1]), values], -1)
    return padded[..., places]


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


CHAINS = {
    "csr": (["csr", "csr"], None, None),
    "orders": (["csc", "coo"], None, "csc"),
    "masked": (["csr", "csc"], "csc", None),
    "blocks": (["bsr", "bsr"], None, None),
    "three": (["csr", "csr", "csc"], None, "csc"),
}


@pytest.mark.parametrize("case", CHAINS)
def test_derivatives_of_products(case: str) -> None:
    formats, mask_format, out_format = CHAINS[case]
    factors = [matrix(4, 4, form, k) for k, form in enumerate(formats)]
    mask = None if mask_format is None else matrix(4, 4, mask_format, 9)
    product = bt.plan_product(*factors, mask=mask, out_format=out_format)
    values = [leaf(factor.data.size) for factor in factors]
    result = product(*values)
    expected = torch.linalg.multi_dot([dense(f, v) for f, v in zip(factors, values, strict=True)])
    where = product.plan.to_scipy(np.arange(1.0, product.plan.pattern.nnz + 1)).toarray()
    rows, columns = where.nonzero()
    order = np.argsort(where[rows, columns])
    torch.testing.assert_close(result, expected[rows[order], columns[order]])
    assert torch.autograd.gradcheck(product, values) and torch.autograd.gradgradcheck(product, values)
    batch = [leaf(2, 1, values[0].numel()), *(leaf(3, v.numel()) for v in values[1:])]
    assert product(*batch).shape == (2, 3, product.plan.pattern.nnz)
    assert torch.autograd.gradcheck(product, batch, check_batched_grad=True, check_forward_ad=True)
    shared = [batch[0], values[1].detach(), *batch[2:]]
    assert torch.autograd.gradcheck(product, [shared[0], values[1], *shared[2:]])


@pytest.mark.parametrize("form", some("csr", long=["csc"]))
def test_gradients_of_row_wise_products(form: str) -> None:
    """Products with so many terms per row that the plan has no list of them, against dense PyTorch."""
    rng = np.random.default_rng(0)
    a, b = (sp.csr_array(rng.random(shape) * (rng.random(shape) < 0.9)) for shape in ((3, 70), (70, 30)))
    a, b = a.asformat(form), b.asformat(form)
    product = bt.plan_product(a, b, out_format=form)
    result = product.plan.to_scipy(np.arange(1.0, product.plan.pattern.nnz + 1)).tocoo()
    rows, columns = np.stack([result.row, result.col])[:, np.argsort(result.data)]

    def reference(*values: torch.Tensor) -> torch.Tensor:
        return (dense(a, values[0]) @ dense(b, values[1]))[..., rows, columns]

    for heads in ((), ()), ((2, 1), (3,)), ((), (17,)):
        values = [leaf(*head, factor.nnz) for head, factor in zip(heads, (a, b), strict=True)]
        gradients = []
        for multiply in (product, reference):
            first = torch.autograd.grad(multiply(*values).pow(3).sum(), values, create_graph=True)
            second = torch.autograd.grad(first[0].sin().sum() + first[1].sin().sum(), values)
            gradients.append([*first, *second])
        torch.testing.assert_close(*gradients)
    assert {(m.single.kind, m.many.kind) for m in product.plan.multiplications} == {("row_wise", "row_wise")}


@pytest.mark.parametrize("form", some("csr", long=["csc", "coo"]))
def test_derivatives_of_dense_operands(form: str) -> None:
    a = matrix(5, 4, form)
    matmul, values, x, y = bt.plan_matmul(a), leaf(a.nnz), leaf(4, 3), leaf(5, 3)
    torch.testing.assert_close(matmul(values, x), dense(a, values) @ x)
    at = dense(a, torch.arange(1.0, a.nnz + 1))
    rows, columns = at.nonzero(as_tuple=True)
    torch.testing.assert_close(matmul.sddmm(y, x)[at[rows, columns].long() - 1], (y @ x.T)[rows, columns])
    for call, inputs in ((matmul, (values, x)), (matmul.sddmm, (y, x))):
        assert torch.autograd.gradcheck(call, inputs) and torch.autograd.gradgradcheck(call, inputs)
    assert torch.autograd.gradcheck(matmul, (leaf(2, 1, a.nnz), leaf(2, 4, 3)), check_batched_grad=True)
    assert torch.autograd.gradcheck(matmul, (values, leaf(2, 4, 3)))
    assert torch.autograd.gradcheck(matmul.sddmm, (leaf(2, 5, 3), x))


def test_mapped_by_torch_func() -> None:
    a, b = matrix(4, 4), matrix(4, 4, "csc", 1)
    product, matmul = bt.plan_product(a, b), bt.plan_matmul(a)
    calls: Any = [(product, leaf(3, a.nnz), leaf(b.nnz)), (product, leaf(3, 2, a.nnz), leaf(2, b.nnz))]
    calls += [(matmul, leaf(3, a.nnz), leaf(4, 2)), (matmul, leaf(3, a.nnz), leaf(5, 4, 2))]
    for call, first, second in calls:

        def loss(u: torch.Tensor, v: torch.Tensor, call: Any = call) -> torch.Tensor:
            return call(u, v).sin().sum()

        gradient = torch.func.grad(loss, (0, 1))
        gradients = torch.vmap(gradient, (0, None))(first, second)
        for k in range(3):
            torch.testing.assert_close([f[k] for f in gradients], list(gradient(first[k], second)))
    hessian = torch.func.hessian(lambda u: product(u, calls[0][2]).square().sum())(calls[0][1][0])
    torch.testing.assert_close(hessian, hessian.T)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # PyTorch's own, of a tensor between two graphs
def test_torch_compile_calls_products_between_its_graphs() -> None:
    a = matrix(4, 4)
    product, matmul = bt.plan_product(a, a), bt.plan_matmul(a)

    def loss(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (product(2 * values, values).sin() * matmul.sddmm(x, x).sum()).sum() + matmul(values, x).sum()

    values, x = leaf(a.nnz), leaf(4, 2)
    expected, actual = loss(values, x), torch.compile(loss, backend="aot_eager")(values, x)
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(result, (values, x)) for result in (actual, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.long
def test_what_few_calls_need_is_imported_late() -> None:
    """torch._dynamo and SymPy take as long to import as all the rest of the package."""
    program = (
        "import sys, bppsa_cupy.torch; sys.exit('torch._dynamo' in sys.modules or 'sympy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_refused() -> None:
    a = matrix(4, 4)
    product, matmul = bt.plan_product(a, a), bt.plan_matmul(a)
    for call in (
        lambda: product(leaf(a.nnz)),
        lambda: product(leaf(a.nnz), leaf(a.nnz + 1)),
        lambda: product(leaf(a.nnz), leaf(a.nnz).float()),
        lambda: product(leaf(2, a.nnz), leaf(3, a.nnz)),
        lambda: matmul(leaf(a.nnz), leaf(5, 3)),
        lambda: matmul.sddmm(leaf(4, 3), leaf(4, 2)),
        lambda: bt.plan_product(a),
    ):
        with pytest.raises((bp.ArgumentError, bp.ShapeError)):
            call()
