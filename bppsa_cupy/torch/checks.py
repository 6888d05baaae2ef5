"""What a module is given: refused by name where it does not fit; and packed sequences as padded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from bppsa_cupy.errors import ArgumentError, DeviceError, ShapeError
from bppsa_cupy.torch.transforms import is_recorded

DTYPES = (torch.float32, torch.float64)


class NoKernelError(Exception):
    """Why a step of `recurrence` has no kernel."""


def check_arguments(module: Any) -> None:
    """Raise ArgumentError where a module has arguments that the engine does not take."""
    name, p, proj_size = type(module).__name__, module.dropout, getattr(module, "proj_size", 0)
    if proj_size:
        raise ArgumentError(
            f"{name} has proj_size={proj_size}, but bppsa_cupy.torch supports only 0: use torch.nn.LSTM"
        )
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ArgumentError(f"{name} has dropout={p!r}: pass a probability from 0 to 1")


def is_plain(module: Any, x: Any, parameters: Sequence[torch.Tensor]) -> bool:
    """Whether a call without states needs no other check: of a batch of sequences on the CPU, without
    dropout, which PyTorch does not record and torch.func does not transform."""
    weight = parameters[0]
    dtype = weight.dtype
    if dtype not in DTYPES or not isinstance(x, torch.Tensor) or x.dtype != dtype or not x.is_cpu:
        return False
    for parameter in parameters:
        if not parameter.is_cpu:
            return False
    shape, dropout = x.shape, module.dropout
    return (
        len(shape) == 3
        and shape[0] > 0
        and shape[1] > 0
        and shape[2] == module.input_size
        and type(dropout) is float
        and dropout == 0
        and not getattr(module, "proj_size", 0)
        and not is_recorded()
        and not torch._C._are_functorch_transforms_active()
    )


def check_tensors(
    module: Any, x: torch.Tensor, states: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]
) -> None:
    """Raise where input, states and parameters are not of one dtype and device that the engine takes."""
    name, weight = type(module).__name__, parameters[0]
    if not isinstance(x, torch.Tensor):
        raise ArgumentError(
            f"{name} got input of {type(x).__name__}: pass a tensor, for example torch.from_numpy(array) or "
            "torch.tensor(list)"
        )
    dtype, on_host = weight.dtype, weight.is_cpu
    if dtype not in DTYPES:
        raise ShapeError(
            f"{name} has parameters of {dtype}: convert them to torch.float32 or torch.float64, for example "
            "with module.float()"
        )
    if not on_host and weight.device.type != "cuda":
        raise DeviceError(
            f"{name} is on {weight.device}: move it to cpu or cuda, for example with module.to('cpu')"
        )
    for tensor in (x, *states):
        if tensor.dtype != dtype:
            argument, cure = "input" if tensor is x else "hx", ""
            if torch.is_autocast_enabled(kind := weight.device.type):
                cure = f" inside of torch.autocast({kind!r}, enabled=False)"
            elif tensor.dtype in DTYPES:
                cure = f", or convert model: model.to({tensor.dtype})"
            raise ShapeError(
                f"RNN {argument} dtype ({tensor.dtype}) does not match weight dtype ({dtype}). Convert "
                f"{argument}: {argument}.to({dtype}){cure}"
            )
    for tensor in (x, *states, *parameters):
        if not (on_host and tensor.is_cpu) and tensor.device != weight.device:
            argument = "input" if tensor is x else "hx or a parameter"
            raise DeviceError(
                f"{name} is on {weight.device}, but its {argument} is on {tensor.device}: move one of them, "
                f"for example with .to('{weight.device}')"
            )


def check_sequence(module: Any, x: torch.Tensor) -> None:
    """Raise ShapeError unless x is (T, F), or with a batch (T, B, F) or (B, T, F)."""
    if x.dim() not in (2, 3):
        raise ShapeError(
            f"{type(module).__name__}: Expected input to be 2D or 3D, got {x.dim()}D: pass "
            f"{'(B, T' if module.batch_first else '(T, B'}, {module.input_size}), or (T, "
            f"{module.input_size}) without a batch"
        )
    if 0 in x.shape[:-1]:
        raise ShapeError(
            f"{type(module).__name__} got input of shape {tuple(x.shape)}: pass at least one "
            "sequence and one step"
        )
    if x.shape[-1] != module.input_size:
        raise ShapeError(
            f"{type(module).__name__}: input.size(-1) must be equal to input_size. Expected "
            f"{module.input_size}, got {x.shape[-1]}"
        )


def check_resets(module: Any, x: Any, resets: Any) -> None:
    """Raise ShapeError unless x is a tensor and resets are bools of its shape, without the features."""
    if not isinstance(x, torch.Tensor) or not isinstance(resets, torch.Tensor):
        raise ArgumentError(
            f"{type(module).__name__} got input of {type(x).__name__} and resets of {type(resets).__name__}: "
            "pass both as tensors, because resets do not work with a PackedSequence"
        )
    if resets.dtype != torch.bool or resets.shape != x.shape[:-1]:
        raise ShapeError(
            f"{type(module).__name__} got resets of {resets.dtype} and shape {tuple(resets.shape)}: pass "
            f"torch.bool of shape {tuple(x.shape[:-1])}"
        )


def check_states(module: Any, states: Sequence[torch.Tensor], batch: int | None) -> None:
    """Raise ShapeError unless states are (num_layers D, B, H), or without a batch (num_layers D, H)."""
    rows = module.num_layers * (2 if module.bidirectional else 1)
    shape = (rows, module.hidden_size) if batch is None else (rows, batch, module.hidden_size)
    for state in states:
        if tuple(state.shape) != shape:
            raise ShapeError(
                f"{type(module).__name__} got hx of shape {tuple(state.shape)}: for this input, pass "
                f"{shape}, which is (num_layers * directions{'' if batch is None else ', B'}, hidden_size)"
            )


# ---- packs ----


def unpack(name: str, pack: PackedSequence, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sequences (B, T, F) in the pack's own order, longest first, and their lengths (B,).

    Raises ShapeError for a pack whose parts do not belong together.

    Parameters
    ----------
    name : str
        Name of the module, for messages.
    """
    data, sizes = pack.data, pack.batch_sizes
    if data.dim() != 2 or data.shape[1] != features:
        raise ShapeError(
            f"{name} got a PackedSequence whose data have shape {tuple(data.shape)}: pass data of shape "
            f"(steps, {features})"
        )
    if int(sizes.sum()) != data.shape[0] or bool((sizes[1:] > sizes[:-1]).any()) or int(sizes[-1]) < 1:
        raise ShapeError(
            f"{name} got a PackedSequence of {data.shape[0]} steps with the invalid batch_sizes "
            f"{sizes.tolist()}: pack the sequences again with pack_padded_sequence"
        )
    return pad_packed_sequence(PackedSequence(data, sizes), batch_first=True)


def over_pack(
    module: Any,
    pack: PackedSequence,
    states: Sequence[torch.Tensor],
    call: Callable[..., Sequence[torch.Tensor]],
) -> tuple[Any, Sequence[torch.Tensor]]:
    """Outputs and last states of a pack, by `call` of padded sequences (B, T, F), their lengths and states.

    States come and go in the order of the sequences before they were packed.
    """
    x, lengths = unpack(type(module).__name__, pack, module.input_size)
    check_states(module, states, x.shape[0])
    order, back = pack.sorted_indices, pack.unsorted_indices
    if order is not None:
        states = [state.index_select(1, order) for state in states]
    y, *after = call(x, lengths, states)
    if back is not None:
        after = [state.index_select(1, back) for state in after]
    if y.dim() < 3:  # the last step's
        return y if back is None else y[back], after
    data = pack_padded_sequence(y, lengths, batch_first=True).data
    return PackedSequence(data, pack.batch_sizes, order, back), after
