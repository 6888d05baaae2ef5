"""CUDA arrays by way of pinned host memory, for an MPI that knows no CUDA."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.distributed.transport import MpiTransport, Transport
from bppsa_cupy.distributed.waiting import Handle


class StagedTransport(Transport):
    """Copies to pinned memory, sends that by `mpi`, and the other way round.

    Copies run on the current stream, in the order of the work around them. A message leaves when its copy
    is done, which any later call and any wait finds out; messages leave in the order of their sends.
    """

    def __init__(self, device: CudaDevice, mpi: MpiTransport) -> None:
        self.device, self.mpi = device, mpi
        mpi.meanwhile = self.advance
        self._copying: deque[_StagedSend] = deque()
        #: Pinned memory that a copy still reads, with the event after the copy.
        self._uploading: deque[tuple[Any, np.ndarray]] = deque()

    def send(self, array: Array, target: int, tag: int) -> Handle:
        handle = _StagedSend(self, array, target, tag)
        self._copying.append(handle)
        self.advance()
        return handle

    def post(self, array: Array, source: int, tag: int) -> Handle:
        return _StagedReceive(self, array, source, tag)

    def broadcast(self, array: Array, root: int) -> None:
        host = self._download(array)
        self.mpi.broadcast(host, root)
        self.upload(host, array)

    def allgather(self, array: Array, into: Array, sizes: Sequence[int]) -> None:
        gathered = self.device.pinned(into.shape, into.dtype)
        self.mpi.allgather(self._download(array), gathered, sizes)
        self.upload(gathered, into)

    def advance(self) -> None:
        while self._copying and self._copying[0].copied():
            self._copying.popleft().leave()
        while self._uploading and self._uploading[0][0].done:
            self._uploading.popleft()

    def upload(self, host: np.ndarray, array: Array) -> None:
        """Start the copy from pinned memory, which is kept for as long."""
        self._uploading.append((self.device.upload(host, array), host))

    def _download(self, array: Array) -> np.ndarray:
        host = self.device.pinned(array.shape, array.dtype)
        self.device.download(array, host).synchronize()
        return host


class _StagedSend(Handle):
    """First a copy, then a message from the copy."""

    __slots__ = ("_address", "_copied", "_host", "_message", "_transport")

    def __init__(self, transport: StagedTransport, array: Array, target: int, tag: int) -> None:
        self.nbytes = array.nbytes
        self._transport, self._address = transport, (target, tag)
        self._host = transport.device.pinned(array.shape, array.dtype)
        self._copied = transport.device.download(array, self._host)
        self._message: Handle | None = None

    def copied(self) -> bool:
        return bool(self._copied.done)

    def leave(self) -> None:
        self._message = self._transport.mpi.send(self._host, *self._address)

    def test(self) -> bool:
        self._transport.advance()
        return self._message is not None and self._message.test()


class _StagedReceive(Handle):
    """First a message into pinned memory, then a copy, after which the current stream goes on."""

    __slots__ = ("_array", "_host", "_message", "_transport")

    def __init__(self, transport: StagedTransport, array: Array, source: int, tag: int) -> None:
        self.nbytes = array.nbytes
        self._transport, self._array = transport, array
        self._host = transport.device.pinned(array.shape, array.dtype)
        self._message: Handle | None = transport.mpi.post(self._host, source, tag)

    def test(self) -> bool:
        self._transport.advance()
        if self._message is None:
            return True
        if not self._message.test():
            return False
        self._message = None
        self._transport.upload(self._host, self._array)
        return True
