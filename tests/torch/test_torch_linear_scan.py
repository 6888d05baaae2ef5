"""`bppsa_cupy.torch.linear_scan`: gradients of first and second order, and under torch.compile."""

from __future__ import annotations

import pytest
import torch
from linear_reference import scan_of_torch
from marks import some_rows

import bppsa_cupy as bp
from bppsa_cupy.torch import linear_scan

RESETS = torch.tensor([0, 0, 1, 0]).bool()


def tensors(dtype: torch.dtype, rows: tuple[int, int] = (2, 4)) -> tuple[torch.Tensor, ...]:
    shapes = (*rows, 2), (2, 4, 2), (2, 2)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


@pytest.mark.parametrize(
    "dtype, reverse",
    some_rows(
        (torch.float64, False), (torch.complex128, True),
        long=[(torch.float64, True), (torch.complex128, False)],
    ),
)  # fmt: skip
def test_gradients_of_first_and_second_order(dtype: torch.dtype, reverse: bool) -> None:
    for rows, lengths, resets in (((2, 4), None, None), ((1, 1), torch.tensor([3, 4]), RESETS)):
        inputs = tensors(dtype, rows)

        def scan(*inputs: torch.Tensor, lengths: object = lengths, resets: object = resets) -> torch.Tensor:
            return linear_scan(*inputs, reverse, lengths, resets)  # type: ignore[arg-type]

        torch.testing.assert_close(scan(*inputs), scan_of_torch(*inputs, reverse, lengths, resets))
        assert torch.autograd.gradcheck(scan, inputs)
        assert torch.autograd.gradgradcheck(scan, inputs)


@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_passes_a_reset_or_an_end(reverse: bool) -> None:
    """Gradients of first and second order are those of the parts, whatever lies beyond the cut."""
    at, before, part = (2, 3, slice(1, 3)) if reverse else (3, 2, slice(3, 5))
    a, b = (torch.full((2, 6, 1), value, dtype=torch.float64) for value in (0.5, 1.0))
    a[:, at], b[:, before] = torch.nan, torch.inf
    a[1, 5], b[1, 5] = torch.inf, torch.inf  # after the second sample's end
    inputs = a.requires_grad_(), b.requires_grad_()
    h = linear_scan(*inputs, None, reverse, torch.tensor([6, 5]), torch.arange(6) == at)
    loss = (h * torch.arange(1.0, 7)[:, None])[:, part].sum()
    first = torch.autograd.grad(loss, inputs, create_graph=True)
    second = torch.autograd.grad(sum((g[:, part] ** 2).sum() for g in first), inputs)
    assert all(gradient.isfinite().all() for gradient in (*first, *second))
    # h_3 = 1, h_4 = 0.5 h_3 + 1 and the loss is 4 h_3 + 5 h_4; in reverse it is 3 h_2 + 2 h_1
    by_a, by_b = ((2, 0), (2, 4)) if reverse else ((0, 5), (6.5, 5))
    torch.testing.assert_close(first[0][:, part, 0], torch.tensor([by_a] * 2, dtype=torch.float64))
    torch.testing.assert_close(first[1][:, part, 0], torch.tensor([by_b] * 2, dtype=torch.float64))


def test_no_steps() -> None:
    a, b = (torch.zeros(2, 0, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    h = linear_scan(a, b, resets=torch.zeros(0, dtype=torch.bool))
    by_a, by_b = torch.autograd.grad(h.sum(), (a, b), create_graph=True)
    assert by_a.shape == by_b.shape == h.shape == (2, 0, 3)


def test_compiled_functions_give_the_same() -> None:
    def loss(a: torch.Tensor, b: torch.Tensor, h0: torch.Tensor) -> torch.Tensor:
        return (linear_scan(a.sigmoid(), b, h0, resets=RESETS) ** 2).sum()

    inputs = tensors(torch.float64)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    actual = torch.autograd.grad(compiled(*inputs), inputs)
    torch.testing.assert_close(actual, torch.autograd.grad(loss(*inputs), inputs))


def test_no_gradient_is_made_of_what_needs_none() -> None:
    a, b, _ = (t.detach() for t in tensors(torch.float64))
    assert not linear_scan(a, b).requires_grad
    h = linear_scan(a[0, 0], b.requires_grad_())
    (by_b,) = torch.autograd.grad(h.sum(), [b])
    assert by_b.shape == b.shape


CALLS = {
    "all": ((0, 0, 0, 0, 0), (3, 2, 4, 2), False),
    "reverse": ((0, 0, 0, 0, None), (3, 2, 4, 2), True),
    "one factor for all samples": ((0, 0, None, None, None), (3, 1, 1, 2), False),
    "factors of a unit": ((0, None, None, 0, 0), (3, 2), False),
    "terms": ((None, 0, None, None, None), (1, 1, 2), True),
    "first states": ((None, None, 0, None, None), (2, 4, 2), False),
    "marks": ((None, 0, 0, None, 0), (2, 4, 2), False),
}


@pytest.mark.parametrize("case", CALLS)
def test_mapped_and_differentiated_by_torch_func(case: str) -> None:
    dims, shape, reverse = CALLS[case]
    torch.manual_seed(0)
    inputs = [
        torch.rand(shape, dtype=torch.float64),
        torch.randn((3, 2, 4, 2), dtype=torch.float64),
        torch.randn((3, 2, 2), dtype=torch.float64),
        torch.tensor([[4, 3], [2, 1], [4, 4]]),
        torch.rand(3, 2, 4) < 0.3 if dims[4] is not None or case == "reverse" else RESETS.expand(3, 4),
    ]
    inputs[1:] = [t if dim == 0 else t[0] for t, dim in zip(inputs[1:], dims[1:], strict=True)]

    def loss(*tensors: torch.Tensor) -> torch.Tensor:
        return linear_scan(*tensors[:3], reverse, *tensors[3:]).sin().sum()

    gradients = torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)), in_dims=dims)(*inputs)
    for entry in range(3):
        tensors = [t if dim is None else t[entry] for t, dim in zip(inputs, dims, strict=True)]
        leaves = [tensor.clone().requires_grad_() for tensor in tensors[:3]]
        factors = leaves[0].reshape((1,) * (3 - leaves[0].ndim) + tuple(leaves[0].shape))
        expected = scan_of_torch(factors, *leaves[1:], reverse, *tensors[3:]).sin().sum()
        for got, wanted in zip(gradients, torch.autograd.grad(expected, leaves), strict=True):
            torch.testing.assert_close(got[entry], wanted)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own
def test_batched_gradients_and_forward_mode() -> None:
    inputs = tensors(torch.float64)

    def scan(*inputs: torch.Tensor) -> torch.Tensor:
        return linear_scan(*inputs, resets=RESETS)

    rows = torch.autograd.functional.jacobian(scan, inputs, vectorize=True)
    torch.testing.assert_close(rows, torch.autograd.functional.jacobian(scan, inputs))
    torch.testing.assert_close(torch.func.jacrev(scan, argnums=(0, 1, 2))(*inputs), rows)
    with pytest.raises(bp.PassError, match="reverse mode"):
        torch.func.jvp(scan, inputs, inputs)
