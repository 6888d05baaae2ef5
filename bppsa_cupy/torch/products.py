"""Products of sparse matrices with fixed patterns as differentiable operations of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from bppsa_cupy.errors import DeviceError, ShapeError
from bppsa_cupy.products.bilinear import DifferentiableProduct, Evaluator, Form, SparseMatmul
from bppsa_cupy.torch.engine import array_of, on_device_of, tensor_of
from bppsa_cupy.torch.transforms import hide_from_dynamo, over_batched


def plan_product(*factors: Any, mask: Any = None, out_format: str | None = None) -> DifferentiableProduct:
    """Plan a sparse matrix product that is differentiable with respect to its values.

    Parameters
    ----------
    *factors, mask, out_format
        The sparse matrices or patterns of the factors, optionally the pattern of the result and the order of
        its values ("csr", "csc" or "bsr"): see `bppsa_cupy.plan_product`.

    Returns
    -------
    DifferentiableProduct
        `product(a, b)` returns the values (…, nnz) of the product from those of the factors, in the order of
        each factor's data. All are float32, or all float64, on one device. Leading axes broadcast as batches.

    Notes
    -----
    Gradients of any order and `torch.func` transforms are supported. `torch.compile` breaks the graph at the
    call. The forward pass multiplies BSR factors block by block, the backward pass does not.

    Examples
    --------
    >>> import scipy.sparse
    >>> import torch
    >>> from bppsa_cupy.torch import plan_product
    >>> a = scipy.sparse.csr_array([[1.0, 2.0], [0.0, 3.0]])
    >>> product = plan_product(a, a.T)
    >>> values = torch.tensor(a.data, requires_grad=True)
    >>> c = product(values, values)
    >>> c.detach()
    tensor([5., 6., 6., 9.], dtype=torch.float64)
    >>> torch.autograd.grad(c.sum(), values)[0]
    tensor([ 2., 10., 10.], dtype=torch.float64)
    """
    return DifferentiableProduct(_evaluate, factors, mask, out_format)


def plan_matmul(matrix: Any) -> SparseMatmul:
    """Plan products of a sparse matrix with dense matrices, for example for graph networks.

    Parameters
    ----------
    matrix
        A SciPy sparse matrix in any format, or a `Pattern`. Its values are not read.

    Returns
    -------
    SparseMatmul
        `matmul(values, x)` is A·X (SpMM) for values (…, nnz) and X (…, columns, k). `matmul.sddmm(x, y)`
        returns the entries of X·Yᵀ at the positions of the pattern (SDDMM), for X (…, rows, k) and
        Y (…, columns, k). Both have gradients of any order with respect to all tensors.

    Examples
    --------
    Attention of each node of a graph to its neighbours:

    >>> import scipy.sparse
    >>> import torch
    >>> from bppsa_cupy.torch import plan_matmul
    >>> adjacency = scipy.sparse.csr_array([[0, 1, 1], [1, 0, 0], [1, 0, 0]])
    >>> matmul = plan_matmul(adjacency)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> scores = matmul.sddmm(x, x)
    >>> scores
    tensor([0., 1., 0., 1.])
    >>> matmul(scores, x)
    tensor([[1., 1.],
            [0., 0.],
            [1., 0.]])
    """
    return SparseMatmul(_evaluate, matrix)


@hide_from_dynamo
def _evaluate(form: Form, wanted: int, u: torch.Tensor, v: torch.Tensor) -> Any:
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break()  # loaded by then, unlike at import by torch.compiler.disable
    for tensor in (u, v):
        if not isinstance(tensor, torch.Tensor) or tensor.dtype not in (torch.float32, torch.float64):
            dtype = getattr(tensor, "dtype", type(tensor).__name__)
            raise ShapeError(f"a product got {dtype}: pass float32 or float64 tensors")
    if u.dtype != v.dtype or u.device != v.device:
        raise ShapeError(
            f"a product got tensors of {u.dtype} on {u.device} and of {v.dtype} on {v.device}: pass two "
            "tensors of the same dtype on the same device"
        )
    if u.device.type not in ("cpu", "cuda"):
        raise DeviceError(f"a product got tensors on {u.device}: move them to cpu or cuda")
    return _evaluator(form, wanted, u, v)


class _Bilinear(torch.autograd.Function):
    """An operand of a form from the other two, as autograd and torch.func take it."""

    @staticmethod
    def forward(form: Form, wanted: int, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        arrays = array_of(u), array_of(v)
        return on_device_of(u, lambda device: tensor_of(form.evaluate(device, wanted, *arrays)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.form, ctx.wanted, *operands = inputs
        ctx.save_for_backward(*operands)
        ctx.save_for_forward(*operands)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        operands, needs = ctx.saved_tensors, ctx.needs_input_grad[2:]

        def needed(gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(
                _evaluator.evaluate_gradient(
                    ctx.form, ctx.wanted, k, operands[k].dim(), operands[1 - k], gradient
                )
                for k in (0, 1)
                if needs[k]
            )

        gradients = iter(over_batched(needed, [gradient]))
        return None, None, *(next(gradients) if need else None for need in needs)

    @staticmethod
    def jvp(ctx: Any, _form: Any, _wanted: Any, *tangents: Any) -> Any:
        u, v = ctx.saved_tensors
        parts = [
            _evaluator(ctx.form, ctx.wanted, *pair)
            for pair, tangent in (((tangents[0], v), tangents[0]), ((u, tangents[1]), tangents[1]))
            if tangent is not None
        ]
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: Any, dims: Any, form: Form, wanted: int, u: torch.Tensor, v: torch.Tensor) -> Any:
        return _evaluator.evaluate_mapped(form, wanted, (u, v), dims[2:])


_evaluator = Evaluator(_Bilinear.apply, torch.broadcast_to, torch.movedim)
