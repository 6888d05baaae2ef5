"""Tensors as the engine's arrays, without a copy, and the device and stream that both work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numba
import torch

from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.system.threads import get_threads, set_threads

Result = TypeVar("Result")

#: That Numba has.
MOST_THREADS = numba.config.NUMBA_NUM_THREADS


@cache
def host() -> Device:
    """The engine's device of tensors on the CPU."""
    threads = torch.get_num_threads()
    numba.set_num_threads(numba.get_num_threads())  # starts Numba's, and sets OpenMP's number, PyTorch's too
    torch.set_num_threads(threads)
    return get_device("host")


def on_host(call: Callable[..., Result], *arguments: Any) -> Result:
    """`call` of the host's device and arguments, on no more threads than torch.set_num_threads gave."""
    device, limit = host(), torch.get_num_threads()
    if limit >= MOST_THREADS:
        return call(device, *arguments)
    own = get_threads()
    if own <= limit:
        return call(device, *arguments)
    set_threads(limit)
    try:
        return call(device, *arguments)
    finally:
        set_threads(own)


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
    given = tensor.detach().contiguous()
    return given.numpy() if given.is_cpu else get_device("cuda").asarray(given)
