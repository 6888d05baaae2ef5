"""`linear_scan` of tensors: forward and back by the engine's kernels, differentiable as often as wanted."""

from __future__ import annotations

from typing import Any

import torch

from bppsa_cupy.devices import Device
from bppsa_cupy.errors import ArgumentError, DeviceError, PassError, ShapeError
from bppsa_cupy.timescan import linear_scan as engine
from bppsa_cupy.torch.engine import array_of, on_device_of, operator, tensor_of
from bppsa_cupy.torch.transforms import hide_from_dynamo, is_batched, is_recorded, over_batched

Optional = torch.Tensor | None


def linear_scan(
    a: torch.Tensor,
    b: torch.Tensor,
    h0: Optional = None,
    reverse: bool = False,
    lengths: Optional = None,
    resets: Optional = None,
) -> torch.Tensor:
    """Compute the states h_t = a_t h_{t-1} + b_t of all steps, elementwise.

    Parameters
    ----------
    a : tensor
        (B, T, H), or a shape that broadcasts to it: B or T may be 1, and (T, H) or (H,) is allowed.
    b : tensor, (B, T, H)
        float32, float64, complex64 or complex128.
    h0 : tensor, (B, H), optional
        The state before the first step or, with `reverse`, after the last valid step. Zeros by default.
    reverse : bool, default: False
        Whether to scan from the last step.
    lengths : int tensor, (B,), optional
        The number of valid steps per sample.
    resets : bool tensor, (T,) or (B, T), optional
        True marks steps that start from 0. `bp.linear_scan` explains it.

    Returns
    -------
    tensor, (B, T, H)
        The states, with gradients of any order with respect to a, b and h0. torch.compile is supported.

    Raises
    ------
    ShapeError, ArgumentError, DeviceError
        If an argument is not a tensor, or has the wrong shape, dtype or device.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> bt.linear_scan(torch.tensor([0.5]), torch.ones(1, 3, 1)).flatten()
    tensor([1.0000, 1.5000, 1.7500])
    """
    tensors = [t for t in (a, b, h0) if t is not None]
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentError(
                f"linear_scan got a {type(tensor).__name__}: pass tensors, for example torch.tensor(list)"
            )
        if tensor.dtype != b.dtype or tensor.device != b.device:
            raise ShapeError(
                f"linear_scan got tensors of {tensor.dtype} on {tensor.device} and of {b.dtype} on "
                f"{b.device}: pass tensors of the same dtype on the same device"
            )
    if b.device.type not in ("cpu", "cuda"):
        raise DeviceError(f"linear_scan got tensors on {b.device}: move them to cpu or cuda")
    if a.ndim < 3:
        a = a.reshape((1,) * (3 - a.ndim) + tuple(a.shape))
    if is_recorded() and not torch._C._are_functorch_transforms_active():
        return scan_operator(a, b, h0, lengths, resets, reverse)
    return _Scan.apply(a, b, h0, lengths, resets, reverse)


def _call_engine(function: Any, *arguments: Any) -> Any:
    """The results of a function of the engine for (a, …, lengths, resets, reverse), as tensors."""
    *tensors, reverse = arguments

    def call(device: Device) -> list[torch.Tensor]:
        *arrays, lengths, resets = (None if t is None else array_of(t.resolve_conj()) for t in tensors)
        results = function(*arrays, reverse, lengths, resets, device=device)
        return [tensor_of(array) for array in (results if isinstance(results, tuple) else (results,))]

    return on_device_of(tensors[0], call)


def go_forward(*arguments: Any) -> torch.Tensor:
    """The states, of (a, b, h0, lengths, resets, reverse)."""
    return _call_engine(engine.linear_scan, *arguments)[0]


def go_back(*arguments: Any) -> list[torch.Tensor]:
    """The gradients with respect to a, b and h0, of (a, h, gradient, h0, lengths, resets, reverse)."""
    return _call_engine(engine.linear_scan_backward, *arguments)


class _Scan(torch.autograd.Function):
    """The scan as autograd and torch.func take it."""

    @staticmethod
    @hide_from_dynamo
    def forward(*arguments: Any) -> torch.Tensor:
        return go_forward(*arguments)

    @staticmethod
    @hide_from_dynamo
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        _keep(ctx, inputs, output)

    @staticmethod
    @hide_from_dynamo
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _gradients(ctx, gradient, go_back)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise PassError(
            "linear_scan has no forward-mode derivatives: use reverse mode, for example torch.func.jacrev"
        )

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """All entries as sequences of one batch, B of each entry after those of the entry before."""
        *tensors, reverse = arguments
        batch = tensors[1].movedim(dims[1] or 0, 0).shape[int(dims[1] is not None)]
        merged: list[Any] = []
        for tensor, dim, axes in zip(tensors, dims, (4, 4, 3, 2, 3), strict=False):
            serves_all = not merged and dim is None and len(tensor) == 1  # a (1, T, H) stays as it is
            if tensor is not None and not serves_all:
                tensor = tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
                tensor = tensor if tensor.dim() == axes else tensor.unsqueeze(1)
                tensor = tensor.expand(info.batch_size, batch, *tensor.shape[2:]).flatten(0, 1)
            merged.append(tensor)
        return _Scan.apply(*merged, reverse).unflatten(0, (info.batch_size, batch)), 0


def _gradients(ctx: Any, gradient: torch.Tensor, back: Any) -> Any:
    """The gradients with respect to the arguments; made of differentiable scans where they are to be
    differentiated."""
    a, h0, lengths, resets, h = ctx.saved_tensors
    reverse = ctx.reverse

    def differentiable(gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Of scans and products: g_t = gradient_t + conj(a_{t+1}) g_{t+1}."""
        batch, steps, hidden = h.shape
        step = torch.arange(steps, device=h.device).reshape(1, -1, 1)
        ends = torch.full((), steps, device=h.device) if lengths is None else lengths.to(h.device)
        at_first = step == (ends.reshape(-1, 1, 1) - 1 if reverse else 0)
        # Where nothing that is not finite may enter: at resets, and after each sample's end.
        cut, onward_resets = step >= ends.reshape(-1, 1, 1), None
        if resets is not None:
            cut = cut | torch.atleast_2d(resets).unsqueeze(2)
            onward_resets = cut.roll(1 if reverse else -1, 1).squeeze(2)  # the step that wraps has no past

        def shifted(values: torch.Tensor, is_later: bool) -> torch.Tensor:
            none = values.new_zeros((batch, 1, hidden))
            return torch.cat([none, values[:, :-1]] if is_later else [values[:, 1:], none], 1)[:, :steps]

        factors = a.expand(batch, steps, hidden).conj().resolve_conj().masked_fill(cut, 0)
        by_b = linear_scan(shifted(factors, reverse), gradient, None, not reverse, lengths, onward_resets)
        enters, former = by_b.masked_fill(cut, 0), shifted(h, not reverse)
        if h0 is not None:
            former = torch.where(at_first, h0.unsqueeze(1), former)
        by_a = (enters * former.conj().masked_fill(cut, 0)).sum_to_size(a.shape)
        return (by_a, by_b) if h0 is None else (by_a, by_b, (factors * enters * at_first).sum(1))

    if torch._C._are_functorch_transforms_active() or torch.is_grad_enabled() or is_batched(gradient):
        gradients = over_batched(differentiable, [gradient])
    else:
        gradients = back(a, h, gradient, h0, lengths, resets, reverse)
    return gradients[0], gradients[1], None if h0 is None else gradients[2], None, None, None


@operator(
    "linear_scan",
    "(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? resets, bool reverse) -> Tensor",
)
def scan_operator(a: torch.Tensor, *arguments: Any) -> torch.Tensor:
    """The scan as an operator, which torch.compile leaves as it is."""
    return go_forward(a, *arguments)


@scan_operator.register_fake
def _(a: torch.Tensor, b: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.empty(b.shape, dtype=b.dtype, device=b.device)


@operator(
    "linear_scan_backward",
    "(Tensor a, Tensor h, Tensor gradient, Tensor? h0, Tensor? lengths, Tensor? resets, bool reverse)"
    " -> Tensor[]",
)
def back_operator(a: torch.Tensor, *arguments: Any) -> list[torch.Tensor]:
    """The gradients with respect to a, b and h0."""
    return go_back(a, *arguments)


@back_operator.register_fake
def _(a: torch.Tensor, h: torch.Tensor, *others: Any) -> list[torch.Tensor]:
    shapes = a.shape, h.shape, (h.shape[0], h.shape[2])
    return [torch.empty(shape, dtype=h.dtype, device=h.device) for shape in shapes]


def _keep(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    a, _, h0, lengths, resets, ctx.reverse = inputs
    ctx.save_for_backward(a, h0, lengths, resets, output)


scan_operator.register_autograd(lambda ctx, g: _gradients(ctx, g, back_operator), setup_context=_keep)
