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


@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_passes_a_reset_or_an_end(reverse: bool) -> None:
    """Gradients of first and second order are those of the parts, whatever lies beyond the cut."""
    at, before, kept = (2, 3, slice(1, 3)) if reverse else (3, 2, slice(3, 5))
    a, b = torch.full((2, 6, 1), 0.5), torch.ones(2, 6, 1)
    a[:, at], b[:, before] = torch.nan, torch.inf
    a[1, 5], b[1, 5] = torch.inf, torch.inf  # after the second sample's end
    given = a.requires_grad_(), b.requires_grad_()
    h = linear_scan(*given, None, reverse, torch.tensor([6, 5]), torch.arange(6) == at)
    loss = (h * torch.arange(1.0, 7)[:, None])[:, kept].sum()
    first = torch.autograd.grad(loss, given, create_graph=True)
    second = torch.autograd.grad(sum((g[:, kept] ** 2).sum() for g in first), given)
    assert all(found.isfinite().all() for found in (*first, *second))
    # h_3 = 1, h_4 = 0.5 h_3 + 1 and the loss is 4 h_3 + 5 h_4; in reverse it is 3 h_2 + 2 h_1
    by_a, by_b = ((2, 0), (2, 4)) if reverse else ((0, 5), (6.5, 5))
    torch.testing.assert_close(first[0][:, kept, 0], torch.tensor([by_a] * 2, dtype=torch.float32))
    torch.testing.assert_close(first[1][:, kept, 0], torch.tensor([by_b] * 2, dtype=torch.float32))


def test_no_steps() -> None:
    a, b = (torch.zeros(2, 0, 3, requires_grad=True) for _ in range(2))
    h = linear_scan(a, b, resets=torch.zeros(0, dtype=torch.bool))
    by_a, by_b = torch.autograd.grad(h.sum(), (a, b), create_graph=True)
    assert by_a.shape == by_b.shape == h.shape == (2, 0, 3)


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
