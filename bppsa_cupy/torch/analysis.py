"""`jacobians` of PyTorch's models, and of recurrences that are written in it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence

from bppsa_cupy import functional, layers
from bppsa_cupy.arguments import as_integer
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Device
from bppsa_cupy.errors import ArgumentError, PassError, ShapeError
from bppsa_cupy.layers import Layer
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords, step_records
from bppsa_cupy.system.memory import check_host_memory
from bppsa_cupy.torch import checks
from bppsa_cupy.torch.engine import array_of, engine_layer_of, on_device_of
from bppsa_cupy.torch.modules import OverTime
from bppsa_cupy.torch.pruned import Pruned, mask_of, masked_weight
from bppsa_cupy.torch.tangents import TorchFlow

#: Modules that do one step of a recurrence.
CELLS = (torch.nn.RNNCell, torch.nn.GRUCell, torch.nn.LSTMCell)


def jacobians(
    module: torch.nn.Module | Callable[..., Any],
    x: Any = None,
    h0: Any = None,
    *,
    batch_first: bool = False,
    steps: int | None = None,
) -> JacobianRecords:
    """Compute the transposed Jacobians of every layer of a model, or of every step of a recurrence.

    Parameters
    ----------
    module : torch.nn.Module or callable
        A model in evaluation mode, whose layers get records in call order, or a step function
        ``h_next = step(x_t, h)``, which needs h0.
    x : tensor
        For a model, the input batch, in the layout that the model accepts. For a step function, the inputs of
        all time steps, (T, B, ...), or (T, ...) if h0 has no batch. With None, the step is ``step(h)``.
    h0 : tensor or tuple of tensors, optional
        For a step function, the initial state, (B, S) or (S,), float32 or float64. For a recurrent module,
        the argument hx of its call.
    batch_first : bool, default: False
        Whether x has shape (B, T, ...). Only for step functions.
    steps : int, optional
        The number of time steps if x is None.

    Returns
    -------
    JacobianRecords
        Layers that also exist in bppsa_cupy get sparse records, whose pattern follows from layer and mask.
        Other layers get dense records, computed by autograd. Recurrent modules get one record per time step,
        inner layer and direction. A layer with an integer input, such as Embedding, gets no record, nor do
        Flatten, Identity, and functions that are not modules, such as torch.relu.

    Raises
    ------
    PassError
        If dropout or batch normalization is in training mode, or if a step function or layer couples the
        samples of a batch.
    ArgumentError
        If an argument has the wrong type, or a layer is called with two tensors.
    ShapeError
        If a tensor has the wrong shape or dtype.

    Notes
    -----
    `record.layer` is the index of the model's child that is or contains the layer. `record.path` is the name
    of the layer without a leading index. For the layer "0.body.1", `layer` is 0 and `path` is "body.1". If a
    layer is called again, the path ends with the number of earlier calls.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    >>> bt.jacobians(model, torch.ones(2, 3))
    JacobianRecords(0 Linear, 1 ReLU)
    """
    if isinstance(module, torch.nn.Module):
        if h0 is None and not isinstance(module, CELLS):
            return _of_model(module, (x,))
        if h0 is not None and is_recurrent(module):
            return _of_model(module, (x, h0))
    elif not callable(module):
        raise ArgumentError(
            f"jacobians got a {type(module).__name__}: pass a torch.nn.Module with a batch, or a function "
            "step(x_t, h) with sequences and the initial state"
        )
    if h0 is None:
        raise ArgumentError(
            f"jacobians got the step function {name_of(module)} without an initial state: call "
            "jacobians(step, x, h0)"
        )
    return jacobians_of_steps(module, x, h0, batch_first, steps)


def _of_model(model: torch.nn.Module, inputs: tuple[Any, ...]) -> JacobianRecords:
    """The records of every layer that a call of the model goes through."""
    records: list[JacobianRecord] = []
    calls: Counter[str] = Counter()
    entered: list[tuple[int, list[int]]] = []

    def look(name: str, module: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        # The number of the outermost part, and what is after it in the name.
        first, _, path = name.partition(".")
        children = [child_name for child_name, _ in model.named_children()]
        index = int(first) if first.isdecimal() else children.index(first) if name else 0
        path = path if first.isdecimal() else name
        if calls[name]:
            path = f"{path}.{calls[name]}" if path else str(calls[name])
        calls[name] += 1
        of_layer = _of_layer(module, _label_of(name, module), arguments, named)
        records.extend(replace(record, layer=index, path=path) for record in of_layer)

    def enter(module: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        entered.append((calls.total(), _versions(arguments, named)))

    def leave(name: str, module: Any, arguments: tuple[Any, ...], named: dict[str, Any], _: Any) -> None:
        count, versions = entered.pop()
        if count < calls.total():
            return
        if versions != _versions(arguments, named):
            raise PassError(
                f"jacobians: {_label_of(name, module)} calls none of its layers and changes its input in "
                "place: let it compute on x.clone()"
            )
        look(name, module, arguments, named)

    with ExitStack() as hooks, torch.no_grad():
        found_layers = list(_layers(model, ""))
        names = {name for name, _ in found_layers}
        for name, module in found_layers:
            chances = (getattr(module, chance, 0) for chance in ("p", "dropout"))
            draws = any(isinstance(chance, (int, float)) and chance for chance in chances)
            if module.training and (draws or isinstance(module, torch.nn.modules.batchnorm._BatchNorm)):
                raise PassError(
                    f"jacobians: {name or 'the model'} ({type(module).__name__}) is in training mode, where "
                    "its output is random or depends on other samples: call model.eval() first"
                )
            hook = module.register_forward_pre_hook(partial(look, name), with_kwargs=True)
            hooks.callback(hook.remove)
        for name, module in model.named_modules():
            if name and any(layer.startswith(f"{name}.") for layer in names):
                hooks.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
                hooks.callback(module.register_forward_hook(partial(leave, name), with_kwargs=True).remove)
        model(*inputs)
    if not calls:
        raise ArgumentError(
            f"jacobians: the forward method of {type(model).__name__} calls none of its {len(found_layers)} "
            "layers: pass a model whose forward method calls its layers"
        )
    return JacobianRecords(records)


def _label_of(name: str, module: torch.nn.Module) -> str:
    return f"{name} ({type(module).__name__})" if name else type(module).__name__


def _versions(arguments: tuple[Any, ...], named: dict[str, Any]) -> list[int]:
    return [tensor._version for tensor in (*arguments, *named.values()) if isinstance(tensor, torch.Tensor)]


def _layers(module: torch.nn.Module, name: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules that have no layers inside, or compute without calling them, with their names."""
    children = [pair for pair in module.named_children() if pair[0] != "parametrizations"]
    alone = is_recurrent(module) or isinstance(module, torch.nn.MultiheadAttention)
    if not children or alone or counterpart(module) is not None:
        yield name, module
        return
    for child_name, child in children:
        yield from _layers(child, f"{name}.{child_name}" if name else child_name)


def _of_layer(
    module: torch.nn.Module, label: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> JacobianRecords:
    """The records of one module at what it is called with."""
    if isinstance(module, CELLS):
        raise ArgumentError(
            f"jacobians: {label} computes a single step of a recurrence: call jacobians(cell, x, h0) with "
            "sequences and the initial state"
        )
    dtypes = {parameter.dtype for parameter in module.parameters()}
    if is_recurrent(module) and not getattr(module, "proj_size", 0) and dtypes <= {*checks.DTYPES}:
        return _of_recurrent(module, *arguments, **named)
    inputs = (*arguments, *named.values())
    tensors = [tensor for tensor in inputs if isinstance(tensor, torch.Tensor)]
    if not tensors:
        raise ArgumentError(
            f"jacobians: {label} receives no tensor: call it with a tensor in the forward method of the model"
        )
    x = next((tensor for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()), None)
    if x is None or isinstance(module, torch.nn.Identity):
        return JacobianRecords()
    if x.is_complex():
        raise ShapeError(
            f"jacobians: {label} is called with {x.dtype}, but records are real: use a real layer and x"
        )
    known = counterpart(module) if len(inputs) == 1 and x.dtype in checks.DTYPES else None
    if known is None:
        return JacobianRecords([_dense_record(module, label, x, arguments, named)])
    checks.check_tensors(module, x, (), tuple(known.parameters.values()) or (x,))
    return _by_engine(known, x)


def _of_recurrent(module: Any, input: Any, hx: Any = None, resets: Any = None) -> JacobianRecords:
    """Those of a recurrent module: of each inner layer, direction and step, of a pack by padded sequences."""
    known = recurrent_counterpart(module)
    parameters = list(known.parameters.values())
    states = [] if hx is None else list(hx) if isinstance(hx, (tuple, list)) else [hx]
    lengths = None
    if resets is not None:
        checks.check_resets(module, input, resets)
    if isinstance(input, PackedSequence):
        checks.check_tensors(module, input.data, states, parameters)
        x, lengths = checks.unpack(type(module).__name__, input, module.input_size)
        if input.unsorted_indices is not None:
            x = x.index_select(0, input.unsorted_indices)
            lengths = lengths[input.unsorted_indices.cpu()]
        x = x if module.batch_first else x.swapaxes(0, 1)
    else:
        checks.check_tensors(module, input, states, parameters)
        checks.check_sequence(module, input)
        x = input
        if input.dim() == 2:
            x = input.unsqueeze(axis := 0 if module.batch_first else 1)
            states = [state.unsqueeze(1) for state in states]
            resets = None if resets is None else resets.unsqueeze(axis)
    checks.check_states(module, states, x.shape[0 if module.batch_first else 1])
    return _by_engine(known, x, lengths, states, resets)


def _by_engine(
    known: Counterpart, x: torch.Tensor, lengths: Any = None, states: Any = None, resets: Any = None
) -> JacobianRecords:
    def compute_records(device: Device) -> JacobianRecords:
        return functional.jacobians(
            known.layer,
            {name: array_of(tensor) for name, tensor in known.parameters.items()},
            array_of(x),
            lengths=None if lengths is None else lengths.cpu().numpy(),
            resets=None if resets is None else array_of(resets),
            states=tuple(map(array_of, states)) if states else None,
            buffers={name: array_of(tensor) for name, tensor in known.buffers.items()} or None,
            device=device,
        )  # fmt: skip

    return on_device_of(x, compute_records)


def _dense_record(
    module: torch.nn.Module, label: str, x: torch.Tensor, arguments: tuple[Any, ...], named: dict[str, Any]
) -> JacobianRecord:
    """That of a module without a layer of the engine's: all derivatives of a sample's output by its input x,
    by autograd, one element of the output of all samples at a time."""
    attends, recurs = (isinstance(module, kind) for kind in (torch.nn.MultiheadAttention, torch.nn.RNNBase))
    over_time, inputs = attends or recurs, (*arguments, *named.values())
    if over_time:  # masks and first states are constants
        inputs = (*arguments[:3], *map(named.get, ("query", "key", "value"))) if attends else ()
    if any(isinstance(t, torch.Tensor) and t.is_floating_point() and t is not x for t in inputs):
        raise ArgumentError(
            f"jacobians: {label} is called with more than one tensor: use layers with a single input"
        )

    def by_sample(tensor: torch.Tensor) -> torch.Tensor:
        if over_time and tensor.dim() == 2:
            return tensor[None]
        return tensor.swapaxes(0, 1) if over_time and not module.batch_first else tensor

    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        copy = leaf.clone()  # which the module may write to

        def taken(value: Any) -> Any:
            return copy if value is x else value

        y = module.forward(*map(taken, arguments), **{name: taken(value) for name, value in named.items()})
        y = y[0] if over_time else y
        if not isinstance(y, torch.Tensor) or not y.is_floating_point():
            kind = y.dtype if isinstance(y, torch.Tensor) else type(y).__name__
            raise ShapeError(f"jacobians: {label} returns {kind}: use layers that return one real tensor")
        shape, batch = by_sample(x).shape[1:], len(by_sample(x))
        outputs = by_sample(y)
        if len(outputs) != batch:
            raise ShapeError(
                f"jacobians: {label} returns shape {tuple(y.shape)} for an input of shape {tuple(x.shape)}: "
                "use layers whose output keeps the batch axis of the input"
            )
        outputs = outputs.reshape(batch, prod(outputs.shape[1:]))
    rows, columns = prod(shape), outputs.shape[1]
    dtype = np.dtype(np.float64 if x.dtype == torch.float64 else np.float32)
    needed = rows * columns * batch * dtype.itemsize
    check_host_memory(needed, f"jacobians: a dense Jacobian of {label} for each of {batch} samples")

    def back(by_outputs: torch.Tensor) -> torch.Tensor:
        """(B, rows) the gradients with respect to x."""
        with _differentiating(label):
            return by_sample(_gradients(outputs, leaf, by_outputs)).reshape(batch, rows)

    if batch > 1:
        _check_samples(label, outputs, back)
    weights = torch.zeros_like(outputs)
    values = np.empty((rows, columns, batch), dtype)
    for column in range(columns):
        weights[:, column] = 1
        values[:, column] = back(weights).T.to("cpu", getattr(torch, dtype.name)).numpy()
        weights[:, column] = 0
    geometry = {"type": type(module).__name__, "input_shape": list(shape)}
    pattern, data = Pattern.dense(rows, columns), values.reshape(rows * columns, batch)
    return JacobianRecord(0, type(module).__name__, pattern, data, geometry=geometry)


# ---- the engine's layers of modules ----

#: The engine's layers of modules of torch.nn. Those of equal names have equal arguments.
MADE: dict[type[torch.nn.Module], Callable[..., Layer]] = {
    getattr(torch.nn, name): kind
    for name, kind in layers.LAYERS.items()
    if hasattr(torch.nn, name) and not issubclass(kind, layers.Recurrent)
} | {
    torch.nn.ZeroPad2d: layers.Pad2d,
    torch.nn.CircularPad2d: partial(layers.Pad2d, mode="circular"),
    torch.nn.ReflectionPad2d: partial(layers.Pad2d, mode="reflect"),
}


class Counterpart(NamedTuple):
    """The engine's layer of a module, and what a pass of it takes, by the layer's names."""

    layer: Layer
    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def is_recurrent(module: torch.nn.Module) -> bool:
    """Whether it is torch.nn's RNN, GRU or LSTM, or a recurrent module of ours."""
    return isinstance(module, OverTime) or kind_of(module) in (torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM)


def kind_of(module: torch.nn.Module) -> type[torch.nn.Module]:
    """The module's class; of a parametrized or pruned one that which it had before."""
    if isinstance(module, Pruned):
        return next(kind for kind in type(module).__mro__ if kind in MADE)
    return type(module).__mro__[1] if parametrize.is_parametrized(module) else type(module)


def recurrent_counterpart(module: Any) -> Counterpart:
    """That of a recurrent module. Raises ArgumentError for proj_size."""
    checks.check_arguments(module)
    engine = engine_layer_of(
        module.mode, module.input_size, module.hidden_size, module.num_layers, module.bias,
        module.batch_first, module.bidirectional,
    )  # fmt: skip
    parameters = {name: getattr(module, name) for name in module._flat_weights_names}
    return Counterpart(engine.layer, parameters, {})


def counterpart(module: Any) -> Counterpart | None:
    """That of another module; None where the engine has none of its kind, or none of its arguments."""
    make = MADE.get(kind_of(module))
    spread = "Pool2d" in type(module).__name__ and getattr(module, "dilation", 1) not in (1, (1, 1))
    if make is None or spread or getattr(module, "divisor_override", None) is not None:
        return None
    options = {
        name: getattr(module, name) for name in inspect.signature(make).parameters if hasattr(module, name)
    }
    if "bias" in options:
        options["bias"] = options["bias"] is not None
    mask = mask_of(module)
    if mask is not None:
        options["mask"] = mask.detach().cpu().numpy()
    try:
        layer = make(**options)
    except (ArgumentError, ShapeError):
        return None
    parameters = {name: getattr(module, name) for name in layer.parameter_shapes()}
    if mask is not None:
        weight = masked_weight(module) if isinstance(module, Pruned) else parameters["weight"]
        parameters["weight"] = torch.where(mask != 0, weight, 0)
    buffers = {name: getattr(module, name) for name in layer.initial_buffers()}
    return Counterpart(layer, parameters, buffers)


# ---- recurrences that are written in PyTorch ----


def jacobians_of_steps(
    step: Callable[..., Any], x: Any, h0: Any, batch_first: bool, steps: int | None
) -> JacobianRecords:
    """The records of every step of a recurrence, called as its caller would: in order, on a batch."""
    flow, name = TorchFlow(step, h0), name_of(step)
    state, total, batch = flow.flat, flow.size, flow.batch or 1
    inputs: Any = [None] * as_integer("jacobians", "steps", steps, 1) if x is None else x
    if x is not None:
        if not isinstance(x, torch.Tensor):
            raise ArgumentError(f"jacobians of a step got x of type {type(x).__name__}: pass a tensor")
        is_batch = flow.batch is not None
        inputs = x.detach().swapaxes(0, 1) if batch_first and is_batch and x.dim() > 1 else x.detach()
        if not x.dim() or not len(inputs) or (is_batch and inputs.shape[1:2] != (batch,)):
            takes = f"(T, {batch}, ...), or (B, T, ...) with batch_first=True" if is_batch else "(T, ...)"
            raise ShapeError(
                f"jacobians of a step got x of shape {tuple(x.shape)} with h0 of shape {tuple(state.shape)}: "
                f"pass x of shape {takes}"
            )
    needed = len(inputs) * batch * total**2 * state.element_size()
    check_host_memory(2 * needed, f"jacobians of {len(inputs)} steps and {batch} samples")
    matrices = np.empty((len(inputs), batch, total, total), str(state.dtype).removeprefix("torch."))
    with torch.inference_mode(False), torch.enable_grad():
        for t, x_t in enumerate(inputs):
            before = state.detach().clone().requires_grad_()
            # A step may write into its arguments.
            state = flow.evaluate(None if x_t is None else x_t.clone(), before.clone())
            with _differentiating(name):
                if not t and batch > 1 and state.requires_grad:
                    _check_samples(name, state, partial(_gradients, state, before))
                matrices[t] = _matrices(state, before, batch).cpu().numpy()
    return step_records(name, matrices)


@contextmanager
def _differentiating(label: str) -> Iterator[None]:
    """Name what PyTorch cannot differentiate."""
    try:
        yield
    except PassError:
        raise
    except RuntimeError as cause:
        raise PassError(
            f"jacobians: PyTorch cannot differentiate {label} ({str(cause).splitlines()[0]}): use "
            "differentiable operations"
        ) from cause


def _matrices(after: torch.Tensor, before: torch.Tensor, batch: int) -> torch.Tensor:
    """The transposed Jacobians (B, S, S) of a step's result by the state before it."""
    total = after.shape[-1]
    if not after.requires_grad:
        return after.new_zeros(batch, total, total)
    basis = torch.eye(total, dtype=after.dtype, device=after.device)
    basis = basis[:, None].expand(total, batch, total) if after.dim() == 2 else basis
    try:
        rows = _gradients(after, before, basis, is_grads_batched=True)
    except RuntimeError:  # an operation whose backward pass torch.vmap does not take
        rows = torch.stack([_gradients(after, before, by_output) for by_output in basis])
    return rows.reshape(total, batch, total).permute(1, 2, 0)


def name_of(function: Any) -> str:
    """What records call a step."""
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "step"


# ---- derivatives by autograd ----


def _gradients(
    result: torch.Tensor, inputs: torch.Tensor, by_result: torch.Tensor, **options: Any
) -> torch.Tensor:
    """The gradient with respect to what is given."""
    options |= {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    return torch.autograd.grad(result, inputs, by_result, **options)[0]


def _check_samples(label: str, result: torch.Tensor, back: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Raise PassError where `back`, of a gradient with respect to the result (B, n), shows that a sample's
    result follows from another sample."""
    weights = torch.zeros_like(result)
    weights[0] = torch.cos(torch.arange(result.shape[1], dtype=result.dtype, device=result.device))
    if bool(back(weights)[1:].any()):
        raise PassError(
            f"jacobians: {label} couples the samples of a batch, so there is no Jacobian per sample: pass a "
            "batch of one sample"
        )
