"""Tensors as the engine's arrays and back, without a copy, and the stream that both work on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch

from bppsa_cupy.devices import Array, Device, get_device

_ON_HOST = nullcontext()


def device_of(tensor: torch.Tensor) -> Device:
    """The engine's device of a tensor on the CPU or a GPU. Raises DeviceError without CuPy for the latter."""
    return _device("cuda" if tensor.is_cuda else "host")


@cache
def _device(name: str) -> Device:
    return get_device(name)


def on_stream_of(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """Work on the tensor's device, on PyTorch's current stream."""
    if not tensor.is_cuda:
        return _ON_HOST
    return device_of(tensor).on_stream(
        tensor.device.index, torch.cuda.current_stream(tensor.device).cuda_stream
    )


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor's memory as NumPy's or CuPy's array."""
    given = tensor.detach() if tensor.requires_grad else tensor
    return device_of(tensor).asarray(given) if tensor.is_cuda else given.numpy()


def tensor_of(array: Array) -> torch.Tensor:
    """The array's memory as a tensor."""
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.from_dlpack(array)
