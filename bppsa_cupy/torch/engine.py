"""The engine on tensors: devices, arrays without a copy, layers of modules, and passes that tensors keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import torch

from bppsa_cupy.cells import Cell
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.devices.host import start_threads
from bppsa_cupy.functional import Saved
from bppsa_cupy.functional import passes as functional
from bppsa_cupy.functional.ahead import layer_named
from bppsa_cupy.functional.passes import Pool, checked_arrays, pool_of
from bppsa_cupy.layers import CellLayer, MatrixRecurrent
from bppsa_cupy.layers.cell_layers import ProjectedCellLayer
from bppsa_cupy.system.threads import get_threads, set_threads
from bppsa_cupy.torch.transforms import hide_from_dynamo

Result = TypeVar("Result")

#: That Numba has.
MOST_THREADS = numba.config.NUMBA_NUM_THREADS


@cache
def host() -> Device:
    """The engine's device of tensors on the CPU."""
    start_threads()
    return get_device("host")


def on_host(call: Callable[..., Result], *arguments: Any) -> Result:
    """`call` of the host's device and arguments, on no more threads than torch.set_num_threads gave."""
    device, limit = host(), torch.get_num_threads()
    if limit >= MOST_THREADS:
        return call(device, *arguments)
    threads = get_threads()
    if threads <= limit:
        return call(device, *arguments)
    set_threads(limit)
    try:
        return call(device, *arguments)
    finally:
        set_threads(threads)


def on_device_of(tensor: torch.Tensor, call: Callable[..., Result], *arguments: Any) -> Result:
    """`call` of the tensor's device and arguments."""
    if tensor.is_cpu:
        return on_host(call, *arguments)
    with on_gpu_of(tensor) as device:
        return call(device, *arguments)


@contextmanager
def on_gpu_of(tensor: torch.Tensor) -> Iterator[Device]:
    """Work on the tensor's GPU, which the block is given as the engine's device, on PyTorch's current stream.
    While PyTorch captures a graph, memory comes from its private pool. Raises DeviceError without CuPy."""
    device, where = get_device("cuda"), tensor.device
    with device.on_stream(where.index, torch.cuda.current_stream(where).cuda_stream):
        if device.capturing:
            with device.xp.cuda.using_allocator(_allocator(device).malloc):
                yield device
        else:
            yield device


@cache
def _allocator(device: Device) -> Any:
    """PyTorch's memory as an allocator of CuPy's: a capture of PyTorch's forbids cudaMalloc to all others."""
    return device.xp.cuda.PythonFunctionAllocator(
        lambda size, number: torch.cuda.caching_allocator_alloc(size, number),
        lambda address, number: torch.cuda.caching_allocator_delete(address),
    )


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor's memory as NumPy's or CuPy's array; C-contiguous, of a copy where it is not."""
    tensor_data = tensor.detach().contiguous()
    return tensor_data.numpy() if tensor_data.is_cpu else get_device("cuda").asarray(tensor_data)


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor on the memory of an array."""
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.from_dlpack(array)


def operator(name: str, schema: str) -> Any:
    """Return a decorator that makes a function an operator of PyTorch without derivatives.

    With `torch.compile(mode="reduce-overhead")`, CUDA graphs leave the operator out: its results are not in
    the memory pool of these graphs.
    """
    unsafe = getattr(torch.Tag, "cudagraph_unsafe", None)  # from PyTorch 2.9 on
    tags: dict[str, Any] = {} if unsafe is None else {"tags": (unsafe,)}
    return torch.library.custom_op(f"bppsa_cupy::{name}", mutates_args=(), schema=schema, **tags)


# ---- layers of modules, by a text that a compiled graph can hold ----

#: Cells that modules were made of, by digest: a module's text names its cell by it.
_cells: dict[str, Cell] = {}


def mode_of(cell: Cell, kind: str = "cell") -> str:
    """The mode of a layer of this cell, "cell:DIGEST", or "projected:DIGEST" where its input is projected."""
    _cells[cell.digest] = cell
    return f"{kind}:{cell.digest}"


#: What a module's layer is made of: mode, input_size, hidden_size, num_layers, bias, batch_first,
#: bidirectional. The mode is torch.nn's ("RNN_TANH", "GRU", …), or `mode_of` a cell. A graph holds them as a
#: text, joined by "|".
Arguments = tuple[str, int, int, int, bool, bool, bool]


class EngineLayer(NamedTuple):
    """What modules of equal arguments share: the engine's layer, its parameters' names, and the memory of its
    passes."""

    layer: MatrixRecurrent
    names: tuple[str, ...]
    pool: Pool


@lru_cache(maxsize=256)
def engine_layer_of(mode: str, *arguments: Any) -> EngineLayer:
    """That of `Arguments`."""
    *sizes, bias, batch_first, bidirectional = arguments
    options: dict[str, Any] = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    layer: MatrixRecurrent
    kind, _, digest = mode.partition(":")
    if kind == "cell":
        layer = CellLayer(_cells[digest], *sizes, **options)
    elif kind == "projected":
        layer = ProjectedCellLayer(_cells[digest], sizes[1], **options)
    else:
        layer = layer_named(mode, *sizes, **options)
    return EngineLayer(layer, tuple(layer.parameter_shapes()), pool_of(layer))


def engine_layer_named(text: str) -> EngineLayer:
    """That of arguments as a text."""
    mode, *arguments = text.split("|")
    sizes, flags = map(int, arguments[:3]), (flag in ("True", "1") for flag in arguments[3:])
    return engine_layer_of(mode, *sizes, *flags)


# ---- passes ----


@hide_from_dynamo  # without gradients it is called first
def go_forward(
    engine: EngineLayer,
    bounds: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    keep: bool,
) -> tuple[list[torch.Tensor], Saved]:
    """The output and the states after the last step, and what the way back needs, where `keep` is set.

    Parameters
    ----------
    bounds : Tensor or None
        Lengths (B,), or bools (B, T) that mark resets, or None.
    """

    def compute(device: Device) -> tuple[list[torch.Tensor], Saved]:
        layer, names, pool = engine
        array, tensors = array_of(x), [parameter.contiguous() for parameter in parameters]
        # The weights of a traced step have new addresses in each call. Their values are copied, so that
        # launches stay bound.
        addresses = tuple([(tensor.data_ptr() if layer.projects else 0, tensor.shape) for tensor in tensors])
        arrays = partial(_arrays, engine, device, array.dtype, tensors)
        limits = None if bounds is None else array_of(bounds)
        first = tuple(map(array_of, states)) if states else None
        saved = functional.begin(layer, device, array, addresses, arrays, limits, first, keep, pool)
        if not layer.projects:
            for name, tensor in zip(names, tensors, strict=True):
                saved.context.parameters[name][...] = array_of(tensor)
        y = functional.run_forward(saved, array, limits, first)
        after = saved.states
        return [tensor_of(y), *map(tensor_of, after if isinstance(after, tuple) else (after,))], saved

    return on_device_of(x, compute)


def _arrays(engine: EngineLayer, device: Device, dtype: np.dtype, parameters: Sequence[torch.Tensor]) -> Any:
    """Parameters and buffers of a layer, by name. Raises ShapeError."""
    tensors = parameters if engine.layer.projects else [tensor.clone() for tensor in parameters]
    by_name = dict(zip(engine.names, map(array_of, tensors), strict=True))
    return checked_arrays(engine.layer, device, dtype, by_name, None)


def go_back(
    saved: Saved,
    by_output: torch.Tensor | None,
    by_states: Sequence[torch.Tensor | None],
    want_parameters: bool,
    want_input: bool,
    want_states: bool,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    """Return the gradients with respect to input, first states and parameters.

    Gradients that are not requested are None or empty.

    Parameters
    ----------
    by_output, by_states
        Gradients with respect to the results of `go_forward`; None stands for zeros.
    """

    def compute(device: Device) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
        dtype, shapes = saved.slot.ctx.dtype, saved.slot.shapes
        gradient = device.zeros(shapes.output, dtype) if by_output is None else array_of(by_output)
        after = None
        for tensor in by_states:
            if tensor is not None:
                after = tuple(
                    device.zeros(shape, dtype) if tensor is None else array_of(tensor)
                    for tensor, shape in zip(by_states, shapes.states, strict=True)
                )
                break
        by_parameters, by_input, by_first = functional.go_back(
            saved, gradient, after, want_parameters, want_input, want_states
        )
        first: Any = () if by_first is None else by_first if isinstance(by_first, tuple) else (by_first,)
        by_x = None if by_input is None else tensor_of(by_input)
        return by_x, list(map(tensor_of, first)), list(map(tensor_of, by_parameters.values()))

    return on_device_of(next(tensor for tensor in (by_output, *by_states) if tensor is not None), compute)


# ---- tickets: a pass that a tensor holds, which autograd saves, hands on and frees ----

#: By the address of the memory of the ticket that keeps it.
_passes: dict[int, Saved] = {}


class _Ticket(np.ndarray[Any, Any]):
    """An array of one integer, whose address stands for a pass, which ends with it."""

    address = 0

    def __del__(self) -> None:
        _passes.pop(self.address, None)


def ticket_of(saved: Saved | None) -> torch.Tensor:
    """A tensor (1,) int64 on the CPU whose memory keeps a pass alive; or no pass.

    So the pass is freed when autograd frees what it saved: after the way back, or where a checkpoint does.
    """
    if saved is None:
        return torch.zeros(1, dtype=torch.int64)
    memory = _Ticket(1, np.int64)
    ticket = torch.from_numpy(memory)
    address = memory.address = ticket.data_ptr()
    _passes[address] = saved
    return ticket


def pass_of(ticket: torch.Tensor) -> Saved | None:
    """The pass that a ticket keeps; None for a copy of one."""
    return _passes.get(ticket.data_ptr())
