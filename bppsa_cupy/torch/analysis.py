"""`jacobians` of PyTorch's models, and of recurrences that are written in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import prod
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from bppsa_cupy import functional
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Device
from bppsa_cupy.errors import DeviceError, PassError, ShapeError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords
from bppsa_cupy.system.memory import free_host_memory
from bppsa_cupy.torch import checks
from bppsa_cupy.torch.arrays import array_of, on_gpu_of, on_host
from bppsa_cupy.torch.counterparts import Counterpart, counterpart, is_recurrent, recurrent_counterpart
from bppsa_cupy.torch.packs import unpack
from bppsa_cupy.torch.steps import jacobians_of_steps, name_of

#: Modules that do one step of a recurrence.
CELLS = (torch.nn.RNNCell, torch.nn.GRUCell, torch.nn.LSTMCell)


def jacobians(
    module: torch.nn.Module | Callable[[Any, Any], Any],
    x: Any,
    h0: Any = None,
    *,
    batch_first: bool = False,
) -> JacobianRecords:
    """The transposed Jacobians of every layer of a model at x, or of every step of one's own recurrence.

    module  a torch.nn.Module: every layer inside of it that its forward calls has records, in order of the
            calls. Those of recurrent modules, torch.nn's and ours, are of the states, one a step, inner layer
            and direction; of layers that `bp` has too they are sparse, with a pattern from geometry (and from
            the mask of torch.nn.utils.prune); of others dense, by torch.func. What is computed between
            layers, and a layer of integers, has none.
            Or, with h0, a step of a recurrence: h_next = step(x_t, h), whose Jacobians by h torch.func gives
    x       a batch, as the model takes it: axis 0 is the batch, of sequences axis 1 where a recurrent module
            is not batch_first. For a step (T, B, ...), or (T, ...) where h0 has no batch
    h0      for a step: the state before the first one, (B, S), (S,) without a batch, or a tuple of such
            tensors, which are one state, in order; float32 or float64. For a recurrent module its hx
    batch_first  whether a step's x is (B, T, ...)

    Records are called by a layer's number in a Sequential, or its place among the model's own modules, and by
    its path there: `where(layer=0)`, `where(path="rnn")`. The path of a layer that is called again ends with
    the number of the call. Values are those of evaluation mode; graphs and gradients stay as they are.

    Raises PassError for a layer in training mode that is another one then (dropout, batch normalisation), and
    for a step that couples the samples; ShapeError for what does not fit.
    """
    if isinstance(module, torch.nn.Module):
        if h0 is None and not isinstance(module, CELLS):
            return _of_model(module, (x,))
        if h0 is not None and is_recurrent(module):
            return _of_model(module, (x, h0))
    elif not callable(module):
        raise ShapeError(
            f"jacobians got a {type(module).__name__}: it takes a torch.nn.Module and a batch, or a function "
            "step(x_t, h), sequences and the first state"
        )
    if h0 is None:
        raise ShapeError(
            f"jacobians got {name_of(module)}, a step, without h0: it takes jacobians(step, x, h0) with "
            "the state before the first step"
        )
    return jacobians_of_steps(module, x, h0, batch_first)


def _of_model(model: torch.nn.Module, given: tuple[Any, ...]) -> JacobianRecords:
    """The records of every layer that a call of the model goes through."""
    found: list[JacobianRecord] = []
    calls: Counter[str] = Counter()

    def look(name: str) -> Callable[..., None]:
        def before(module: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            index, path = _place(model, name)
            if calls[name]:
                path = f"{path}.{calls[name]}" if path else str(calls[name])
            calls[name] += 1
            told = f"{name} ({type(module).__name__})" if name else type(module).__name__
            found.extend(_of_layer(module, arguments, named, told, index, path))

        return before

    with ExitStack() as hooks, torch.no_grad():
        layers = list(_layers(model, ""))
        for name, module in layers:
            _check_mode(name, module)
            hooks.callback(module.register_forward_pre_hook(look(name), with_kwargs=True).remove)
        model(*given)
    if not calls:
        raise ShapeError(
            f"jacobians of {type(model).__name__}: its forward calls none of its {len(layers)} layers"
        )
    return JacobianRecords(found)


def _layers(module: torch.nn.Module, name: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules that have no layers inside, or are layers of the engine's, with their names."""
    children = list(module.named_children())
    if not children or is_recurrent(module) or counterpart(module) is not None:
        yield name, module
        return
    for own, child in children:
        yield from _layers(child, f"{name}.{own}" if name else own)


def _place(model: torch.nn.Module, name: str) -> tuple[int, str]:
    """The number of a module by its outermost part, and its path: what is after the number, if any."""
    first, _, rest = name.partition(".")
    if first.isdecimal():
        return int(first), rest
    return [own for own, _ in model.named_children()].index(first) if name else 0, name


def _check_mode(name: str, module: torch.nn.Module) -> None:
    """Raise PassError where a layer is another one in training, and in that mode."""
    if not module.training:
        return
    draws = bool(getattr(module, "dropout", 0)) if is_recurrent(module) else bool(getattr(module, "p", 0))
    if draws or isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        raise PassError(
            f"jacobians: {name or 'the model'} ({type(module).__name__}) is in training mode, where its "
            "output follows chance or the other samples: call model.eval() first"
        )


def _of_layer(
    module: torch.nn.Module,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    told: str,
    index: int,
    path: str,
) -> JacobianRecords:
    """The records of one module at what it is called with."""
    if is_recurrent(module):
        return _of_recurrent(module, index, path, *arguments, **named)
    if isinstance(module, CELLS):
        raise ShapeError(
            f"jacobians: {told} does one step of a recurrence: it takes jacobians(cell, x, h0), with "
            "sequences and the state before the first step"
        )
    (x, *more) = (*arguments, *named.values()) or (None,)
    if more or not isinstance(x, torch.Tensor):
        raise ShapeError(f"jacobians: {told} is called with more than one tensor: take layers of one input")
    if not x.is_floating_point() or isinstance(module, torch.nn.Identity):
        return JacobianRecords()
    known = counterpart(module)
    if known is None:
        return JacobianRecords([_dense_record(module, x, told, index, path)])
    checks.check_tensors(module, x, (), tuple(known.parameters.values()) or (x,))
    return _by_engine(known, x, None, None, index, path)


def _of_recurrent(module: Any, index: int, path: str, input: Any, hx: Any = None) -> JacobianRecords:
    """Those of a recurrent module: of each inner layer, direction and step, of a pack by padded sequences."""
    known = recurrent_counterpart(module)
    parameters = list(known.parameters.values())
    states = [] if hx is None else list(hx) if isinstance(hx, (tuple, list)) else [hx]
    lengths = None
    if isinstance(input, PackedSequence):
        checks.check_tensors(module, input.data, states, parameters)
        x, lengths = unpack(type(module).__name__, input, module.input_size)
        if input.unsorted_indices is not None:
            x = x.index_select(0, input.unsorted_indices)
            lengths = lengths[input.unsorted_indices.cpu()]
        x = x if module.batch_first else x.swapaxes(0, 1)
    else:
        checks.check_tensors(module, input, states, parameters)
        checks.check_sequence(module, input)
        x = input
        if input.dim() == 2:
            x = input.unsqueeze(0 if module.batch_first else 1)
            states = [state.unsqueeze(1) for state in states]
    checks.check_states(module, states, x.shape[0 if module.batch_first else 1])
    return _by_engine(known, x, lengths, states, index, path)


def _by_engine(
    known: Counterpart, x: torch.Tensor, lengths: Any, states: Any, index: int, path: str
) -> JacobianRecords:
    def run(device: Device) -> JacobianRecords:
        return functional.jacobians(
            known.layer,
            {name: array_of(tensor) for name, tensor in known.parameters.items()},
            array_of(x),
            lengths=None if lengths is None else lengths.cpu().numpy(),
            states=tuple(map(array_of, states)) if states else None,
            buffers={name: array_of(tensor) for name, tensor in known.buffers.items()} or None,
            index=index, path=path, device=device,
        )  # fmt: skip

    if x.is_cpu:
        return on_host(run)
    with on_gpu_of(x) as device:
        return run(device)


def _dense_record(
    module: torch.nn.Module, x: torch.Tensor, told: str, index: int, path: str
) -> JacobianRecord:
    """That of a module without a layer of the engine's: all derivatives of a sample's output by its input."""

    def of_sample(sample: torch.Tensor) -> torch.Tensor:
        result = module.forward(sample[None].clone())
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            raise ShapeError(
                f"jacobians: {told} puts out {type(result).__name__}: it takes layers of one tensor"
            )
        return result[0]

    rows, batch = prod(x.shape[1:]), len(x)
    columns = of_sample(x[0]).numel()
    needed = 2 * rows * columns * batch * x.element_size()
    if needed > (free := free_host_memory()):
        raise DeviceError(
            f"jacobians: {told} has no sparse Jacobian here, and dense ones of {batch} samples take {needed} "
            f"bytes, {free} are free: take a smaller batch"
        )
    try:
        found = torch.func.vmap(torch.func.jacrev(of_sample))(x)
    except RuntimeError as cause:
        raise PassError(f"jacobians: torch.func has no Jacobian of {told}: {cause}") from cause
    values = found.reshape(batch, columns, rows).permute(2, 1, 0).reshape(rows * columns, batch)
    geometry = {"type": type(module).__name__, "input_shape": list(x.shape[1:])}
    return JacobianRecord(
        index, type(module).__name__, Pattern.dense(rows, columns), values.contiguous().cpu().numpy(),
        geometry=geometry, path=path,
    )  # fmt: skip
