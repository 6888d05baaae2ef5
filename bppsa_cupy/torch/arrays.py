"""Tensors as the engine's arrays, without a copy, and the device and stream that both work on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from bppsa_cupy.devices import Array, Device, get_device


@cache
def host() -> Device:
    """The engine's device of tensors on the CPU."""
    return get_device("host")


@contextmanager
def on_gpu_of(tensor: torch.Tensor) -> Iterator[Device]:
    """Work on the tensor's GPU, which the block is given as the engine's device, on PyTorch's current stream.
    Raises DeviceError without CuPy."""
    device, where = get_device("cuda"), tensor.device
    with device.on_stream(where.index, torch.cuda.current_stream(where).cuda_stream):
        yield device


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor's memory as NumPy's or CuPy's array; C-contiguous, of a copy where it is not."""
    given = tensor.detach().contiguous()
    return given.numpy() if given.is_cpu else get_device("cuda").asarray(given)
