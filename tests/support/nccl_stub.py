"""A stand-in for `cupy.cuda.nccl` on MPI ranks that share no GPU: its messages are MPI's.

As NCCL's, the work of one communicator is done in the order it was given, and a message holds its stream
until both ranks have come to it.
"""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from typing import Any

import cupy_stub
from mpi4py import MPI

available = True
NCCL_UINT8 = 1
_numbers = itertools.count()
_group: list[Message] | None = None
#: Names of the calls made, for the tests to read.
calls: list[str] = []


#: What an identifier is: bytes, as of CuPy 14, or a tuple of signed ones, as of CuPy 13.
kind: type = bytes


def get_unique_id() -> bytes | tuple[int, ...]:
    identifier = bytes([128, 127, next(_numbers), 0, *range(124)])
    return identifier if kind is bytes else tuple(memoryview(identifier).cast("b"))


def groupStart() -> None:
    global _group
    assert _group is None
    _group = []


def groupEnd() -> None:
    global _group
    assert _group
    first, messages, _group = _group[0], _group, None
    first.communicator.queue.append(first)
    first.stream.work.append(first)
    first.also = messages[1:]


class Message:
    """Work of a stream that MPI does, when it is at the head of its communicator's queue."""

    def __init__(self, communicator: NcclCommunicator, stream: int, start: Any) -> None:
        self.communicator, self.stream = communicator, cupy_stub.Stream.made[stream]
        self._start, self._requests, self.also = start, None, []
        if _group is not None:
            _group.append(self)
            return
        communicator.queue.append(self)
        self.stream.work.append(self)

    def poll(self) -> bool:
        queue = self.communicator.queue
        if queue[0] is not self:
            return False
        if self._requests is None:
            self._requests = [message._start() for message in (self, *self.also)]
        done = MPI.Request.Testall(self._requests)
        if done:
            queue.popleft()
        return done


class NcclCommunicator:
    def __init__(self, size: int, identifier: bytes | tuple[int, ...], rank: int) -> None:
        assert type(identifier) is kind and len(identifier) == 128
        assert (MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank) == (size, rank)
        assert set(MPI.COMM_WORLD.allgather(identifier)) == {identifier}
        self._mpi = MPI.COMM_WORLD.Dup()
        self.queue: deque[Message] = deque()

    def send(self, address: int, count: int, datatype: int, peer: int, stream: int) -> None:
        calls.append("send")
        buffer = _buffer(address, count, datatype)
        Message(self, stream, lambda: self._mpi.Issend(buffer, peer))

    def recv(self, address: int, count: int, datatype: int, peer: int, stream: int) -> None:
        calls.append("recv")
        buffer = _buffer(address, count, datatype)
        Message(self, stream, lambda: self._mpi.Irecv(buffer, peer))

    def broadcast(self, source: int, target: int, count: int, datatype: int, root: int, stream: int) -> None:
        calls.append("broadcast")
        buffer = _buffer(target, count, datatype)

        def start() -> Any:
            if root == self._mpi.rank and source != target:
                ctypes.memmove(target, source, count)
            return self._mpi.Ibcast(buffer, root)

        Message(self, stream, start)


def _buffer(address: int, count: int, datatype: int) -> list[Any]:
    assert type(address) is type(count) is int and datatype == NCCL_UINT8
    return [(ctypes.c_char * count).from_address(address) if count else bytearray(), MPI.BYTE]
