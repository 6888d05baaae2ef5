"""CUDA arrays between GPUs by NCCL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError, DistributedError


def require_nccl(device: Device, machine: str, gather: Callable[[str], list[str]]) -> None:
    """Raise DistributedError, the same on every rank, unless each rank has NCCL and a GPU that no other has.

    `machine` is the name of this rank's machine. `gather`, which is collective, returns the texts of all
    ranks.
    """
    failure, gpu = "", ""
    if isinstance(device, CudaDevice):
        gpu = f"{machine}, {device.gpu}"
        try:
            device.nccl()
        except DeviceError as error:
            failure = str(error)
    else:
        failure = f"the device {device.name!r} is not a GPU: use transport='host'"
    for rank, text in enumerate(gather(failure)):
        if text:
            raise DistributedError(f"transport='nccl' cannot be used: on rank {rank} {text}")
    gpus = gather(gpu)
    for rank, text in enumerate(gpus):
        if gpus.index(text) < rank:
            raise DistributedError(
                f"ranks {gpus.index(text)} and {rank} share a GPU ({text}), but NCCL needs one GPU per rank: "
                "start fewer ranks, or use transport='host'"
            )


class Nccl:
    """Messages on separate streams; the current stream waits for them, the host does not.

    NCCL knows no tags: messages of one source are received in the order in which they were sent. A copy holds
    its stream until both ranks have come to it, so messages to higher ranks have one stream, and messages to
    lower ranks another. No rank then waits for ever where the messages of each direction, in the order of the
    program, end also if every send waits for its receiver.

    Making one is collective: `communicator`, of MPI, tells all ranks the names of the two communicators.
    """

    def __init__(self, device: CudaDevice, communicator: Any) -> None:
        self._nccl, self._rank = device.nccl(), communicator.rank
        size = communicator.size
        made = [self._nccl.get_unique_id() for _ in range(2)] if self._rank == 0 else []
        # As objects: CuPy 13 makes tuples of 128 signed bytes, CuPy 14 bytes.
        self._upward, self._downward = (
            _Channel(device, self._nccl.NcclCommunicator(size, identifier, self._rank))
            for identifier in communicator.bcast(made, 0)
        )

    def send(self, array: Array, target: int) -> _Copy:
        """Start a message."""
        channel = self._upward if target > self._rank else self._downward
        send, byte = channel.communicator.send, self._nccl.NCCL_UINT8
        return channel.start(lambda stream: send(array.data.ptr, array.nbytes, byte, target, stream), array)

    def receive(self, array: Array, source: int) -> None:
        """Receive the next message of rank `source`."""
        channel = self._upward if source < self._rank else self._downward
        recv, byte = channel.communicator.recv, self._nccl.NCCL_UINT8
        copy = channel.start(lambda stream: recv(array.data.ptr, array.nbytes, byte, source, stream), array)
        copy.wait()

    def broadcast(self, array: Array, root: int) -> None:
        """Replace `array` on every rank by that of rank `root`."""

        def start(stream: int) -> None:
            address, byte = array.data.ptr, self._nccl.NCCL_UINT8
            self._upward.communicator.broadcast(address, address, array.nbytes, byte, root, stream)

        self._upward.start(start, array).wait()

    def allgather(self, array: Array, into: Array, sizes: Sequence[int]) -> None:
        """Fill `into` with the arrays of all ranks, which have `sizes` bytes."""

        def start(stream: int) -> None:
            address, byte = into.data.ptr, self._nccl.NCCL_UINT8
            self._nccl.groupStart()
            for root, size in enumerate(sizes):
                source = array.data.ptr if root == self._rank else address
                self._upward.communicator.broadcast(source, address, size, byte, root, stream)
                address += size
            self._nccl.groupEnd()

        self._upward.start(start, array, into).wait()


class _Channel:
    """A communicator and the stream of its copies, with the arrays that unfinished ones use."""

    def __init__(self, device: CudaDevice, communicator: Any) -> None:
        self.communicator, self._device = communicator, device
        self._stream = device.xp.cuda.Stream(non_blocking=True)
        self._used: deque[tuple[Any, tuple[Array, ...]]] = deque()

    def start(self, start: Callable[[int], None], *arrays: Array) -> _Copy:
        """Call `start(stream)` after the current stream's work, and return the copy that it started."""
        while self._used and self._used[0][0].done:
            self._used.popleft()
        self._stream.wait_event(self._device.mark())
        with self._stream:
            start(self._stream.ptr)
            done = self._device.mark()
        self._used.append((done, arrays))
        return _Copy(self._device, done)


class _Copy:
    """A copy that was started; `done` is the event after it."""

    def __init__(self, device: CudaDevice, done: Any) -> None:
        self._device, self._done = device, done

    def test(self) -> bool:
        return bool(self._done.done)

    def wait(self) -> None:
        self._device.xp.cuda.get_current_stream().wait_event(self._done)
