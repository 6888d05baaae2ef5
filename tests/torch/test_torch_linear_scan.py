"""`bppsa_cupy.torch.linear_scan`: gradients of first and second order, and under torch.compile."""

from __future__ import annotations

import pytest
import torch
from linear_reference import scan_of_torch

import bppsa_cupy as bp
from bppsa_cupy.torch import linear_scan

RESETS = torch.tensor([0, 0, 1, 0]).bool()


def tensors(dtype: torch.dtype, rows: tuple[int, int] = (2, 4)) -> tuple[torch.Tensor, ...]:
    shapes = (*rows, 2), (2, 4, 2), (2, 2)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients_of_first_and_second_order(dtype: torch.dtype, reverse: bool) -> None:
    for rows, lengths, resets in (((2, 4), None, None), ((1, 1), torch.tensor([3, 4]), RESETS)):
        given = tensors(dtype, rows)

        def scan(*given: torch.Tensor, lengths: object = lengths, resets: object = resets) -> torch.Tensor:
            return linear_scan(*given, reverse, lengths, resets)  # type: ignore[arg-type]

        torch.testing.assert_close(scan(*given), scan_of_torch(*given, reverse, lengths, resets))
        assert torch.autograd.gradcheck(scan, given)
        assert torch.autograd.gradgradcheck(scan, given)


def test_compiled_functions_give_the_same() -> None:
    def loss(a: torch.Tensor, b: torch.Tensor, h0: torch.Tensor) -> torch.Tensor:
        return (linear_scan(a.sigmoid(), b, h0, resets=RESETS) ** 2).sum()

    given = tensors(torch.float32)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(*given), given)
    torch.testing.assert_close(found, torch.autograd.grad(loss(*given), given))


def test_no_gradient_is_made_of_what_needs_none() -> None:
    a, b, _ = (t.detach() for t in tensors(torch.float32))
    assert not linear_scan(a, b).requires_grad
    h = linear_scan(a[0, 0], b.requires_grad_())
    (by_b,) = torch.autograd.grad(h.sum(), [b])
    assert by_b.shape == b.shape


@pytest.mark.parametrize(
    "a, message",
    [
        (torch.zeros(2, 5, 3, dtype=torch.float64), "of torch.float64 on cpu and of torch.float32 on cpu"),
        ([0.5], "got a list: it takes tensors"),
        (torch.zeros(2, 4, 3), r"a of shape \(2, 4, 3\)"),
        (torch.zeros(2, 5, 3, device="meta"), "on meta"),
    ],
)
def test_what_does_not_fit_is_named(a: object, message: str) -> None:
    with pytest.raises(bp.BppsaError, match=message):
        linear_scan(a, torch.zeros(2, 5, 3))  # type: ignore[arg-type]
