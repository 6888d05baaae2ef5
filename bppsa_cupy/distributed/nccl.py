"""CUDA arrays between GPUs by NCCL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.distributed.transport import MpiTransport, Transport
from bppsa_cupy.distributed.waiting import Handle


class NcclTransport(Transport):
    """Copies that streams of their own make; the current stream waits for them, the host does not.

    NCCL knows no tags: messages of one source are received in the order of their posts, which is to be that
    of their sends. A copy holds its stream until both ranks have come to it, so messages to higher ranks
    have one stream and those to lower ranks another, and a posted message is asked for when it is waited
    for. No rank then waits for ever where the messages of each direction, in the order of the program,
    end also if every send waits for its receiver.

    Making one is collective: `mpi` tells all ranks the names of the two communicators.
    """

    def __init__(self, device: CudaDevice, mpi: MpiTransport) -> None:
        self.nccl = device.nccl()
        self._cuda, self._rank = device.xp.cuda, mpi.communicator.rank
        rank, size = self._rank, mpi.communicator.size
        made = [self.nccl.get_unique_id() for _ in range(2)] if rank == 0 else []
        # As objects: CuPy 13 makes and takes tuples of 128 signed bytes, CuPy 14 bytes.
        self._upward, self._downward = (
            _Channel(device, self.nccl.NcclCommunicator(size, identifier, rank))
            for identifier in mpi.communicator.bcast(made, 0)
        )
        self._posted: list[deque[_NcclReceive]] = [deque() for _ in range(size)]

    def send(self, array: Array, target: int, tag: int) -> Handle:
        channel = self._upward if target > self._rank else self._downward

        def start(stream: int) -> None:
            channel.communicator.send(array.data.ptr, array.nbytes, self.nccl.NCCL_UINT8, target, stream)

        return _NcclSend(self, array.nbytes, channel.run(start, array))

    def post(self, array: Array, source: int, tag: int) -> Handle:
        handle = _NcclReceive(self, array, source)
        self._posted[source].append(handle)
        return handle

    def receive(self, source: int) -> None:
        """Start the receive from `source` that was posted first of those not yet started."""
        handle = self._posted[source].popleft()
        channel = self._upward if source < self._rank else self._downward

        def start(stream: int) -> None:
            address = handle.array.data.ptr
            channel.communicator.recv(address, handle.nbytes, self.nccl.NCCL_UINT8, source, stream)

        handle.done = channel.run(start, handle.array)

    def broadcast(self, array: Array, root: int) -> None:
        def start(stream: int) -> None:
            address = array.data.ptr
            self._upward.communicator.broadcast(
                address, address, array.nbytes, self.nccl.NCCL_UINT8, root, stream
            )

        self.follow(self._upward.run(start, array))

    def allgather(self, array: Array, into: Array, sizes: Sequence[int]) -> None:
        def start(stream: int) -> None:
            address = into.data.ptr
            self.nccl.groupStart()
            for root, size in enumerate(sizes):
                source = array.data.ptr if root == self._rank else address
                self._upward.communicator.broadcast(source, address, size, self.nccl.NCCL_UINT8, root, stream)
                address += size
            self.nccl.groupEnd()

        self.follow(self._upward.run(start, array, into))

    def follow(self, done: Any) -> None:
        """Let the current stream go on after the event `done`."""
        self._cuda.get_current_stream().wait_event(done)


class _Channel:
    """A communicator and the stream of its copies, with the arrays that unfinished ones use."""

    def __init__(self, device: CudaDevice, communicator: Any) -> None:
        self.communicator, self._device = communicator, device
        self._stream = device.xp.cuda.Stream(non_blocking=True)
        self._kept: deque[tuple[Any, tuple[Array, ...]]] = deque()

    def run(self, start: Callable[[int], None], *arrays: Array) -> Any:
        """Call `start(stream)` after the current stream's work; the event after what it started."""
        while self._kept and self._kept[0][0].done:
            self._kept.popleft()
        self._stream.wait_event(self._device.mark())
        with self._stream:
            start(self._stream.ptr)
            done = self._device.mark()
        self._kept.append((done, arrays))
        return done


class _NcclSend(Handle):
    """A copy that was started; `done` is the event after it."""

    __slots__ = ("_transport", "done")

    def __init__(self, transport: NcclTransport, nbytes: int, done: Any) -> None:
        self.nbytes, self._transport, self.done = nbytes, transport, done

    def test(self) -> bool:
        return bool(self.done.done)

    def wait(self) -> None:
        self._transport.follow(self.done)


class _NcclReceive(_NcclSend):
    """A copy that starts when it is asked for the first time."""

    __slots__ = ("_source", "array")

    def __init__(self, transport: NcclTransport, array: Array, source: int) -> None:
        super().__init__(transport, array.nbytes, None)
        self.array, self._source = array, source

    def test(self) -> bool:
        self._start()
        return super().test()

    def wait(self) -> None:
        self._start()
        super().wait()

    def _start(self) -> None:
        while self.done is None:
            self._transport.receive(self._source)
