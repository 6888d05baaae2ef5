"""The ranks of a run: an MPI communicator and this rank's device."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.distributed.guard import import_mpi
from bppsa_cupy.errors import DeviceError, DistributedError, ShapeError

#: How arrays of a CUDA device travel.
TRANSPORTS = ("host", "nccl")
#: Kinds of dtypes that travel: bool, signed, unsigned, real.
KINDS = "biuf"
#: Bytes of one rank's part that `sum` gathers at a time.
BLOCK = 1 << 20
#: Seconds of testing at full speed: some round trips of a small message, and a long one's copy at this rate.
SPIN, RATE = 300e-6, 2.5e9
#: The sleep between two tests afterwards, in seconds.
PAUSE = 200e-6
#: Characters of a value that an error of `agree` shows.
SHOWN = 200


class Group:
    """The ranks of an MPI communicator, each with a device.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm, optional
        The communicator, which is duplicated. Default: COMM_WORLD.
    device : Device or str, default: "auto"
        A device or its name. On a machine with several GPUs, "cuda" and "auto" give the ranks of that machine
        different GPUs.
    transport : {"host", "nccl"}, default: "host"
        How CUDA arrays are sent. "host" copies the arrays to host memory and uses MPI. "nccl" uses NCCL,
        which needs one GPU per rank and ignores tags. NumPy arrays are always sent through MPI.

    Attributes
    ----------
    rank, size : int
        This rank's number, and the number of ranks.

    Raises
    ------
    DistributedError
        If mpi4py is missing, `transport` is unknown, or the ranks differ in transport or device.

    Notes
    -----
    Arrays must be C-contiguous, with a bool, integer or real dtype. The constructor, `allgather`, `sum`,
    `broadcast`, `gather`, `agree`, `any`, `barrier` and `close` are collective: every rank must call them in
    the same order, with arrays of the same dtype and shape. Messages with the same source and tag are
    received in the order in which they were sent.

    An uncaught exception on one rank ends all ranks. If a program may call ``sys.exit(1)`` on one rank, use
    `guard` or ``python -m mpi4py``, so that the other ranks do not wait forever.

    Examples
    --------
    >>> import numpy as np
    >>> import bppsa_cupy as bp
    >>> group = bp.Group(device="host")  # doctest: +SKIP
    >>> group.sum(np.ones(3))  # on two ranks  # doctest: +SKIP
    array([2., 2., 2.])
    """

    def __init__(
        self, communicator: Any = None, device: str | Device = "auto", transport: str = "host"
    ) -> None:
        if transport not in TRANSPORTS:
            raise DistributedError(f"transport={transport!r} is unknown: use one of {', '.join(TRANSPORTS)}")
        self.transport = transport
        mpi = self._mpi = import_mpi()
        self._communicator = (mpi.COMM_WORLD if communicator is None else communicator).Dup()
        self.rank: int = self._communicator.rank
        self.size: int = self._communicator.size
        self.device = get_device(device)
        if isinstance(self.device, CudaDevice) and not isinstance(device, Device):
            neighbours = self._communicator.Split_type(mpi.COMM_TYPE_SHARED)
            self.device.use(neighbours.rank)
            neighbours.Free()
        self._sends: deque[Handle] = deque()
        self._passes = 0
        self._nccl: Nccl | None = None
        self.agree(transport=transport, device=self.device.name)
        if transport == "nccl":
            # NCCL needs on each rank a GPU that no other rank has. The error is the same on every rank.
            failure, gpu = "", ""
            if isinstance(self.device, CudaDevice):
                gpu = f"{mpi.Get_processor_name()}, {self.device.gpu}"
                try:
                    self.device.nccl()
                except DeviceError as error:
                    failure = str(error)
            else:
                failure = f"the device {self.device.name!r} is not a GPU: use transport='host'"
            for rank, text in enumerate(self.gather(failure)):
                if text:
                    raise DistributedError(f"transport='nccl' cannot be used: on rank {rank} {text}")
            gpus = self.gather(gpu)
            for rank, text in enumerate(gpus):
                if gpus.index(text) < rank:
                    raise DistributedError(
                        f"ranks {gpus.index(text)} and {rank} share a GPU ({text}), but NCCL needs one GPU "
                        "per rank: start fewer ranks, or use transport='host'"
                    )
            assert isinstance(self.device, CudaDevice)
            self._nccl = Nccl(self.device, self._communicator)

    # ---- from one rank to another ----

    def isend(self, array: Array, target: int, tag: int = 0) -> Handle:
        """Start to send `array` to rank `target`, and return a handle without waiting.

        Do not change `array` before ``handle.wait()`` has returned, or ``handle.test()`` is True. `finish`
        waits for all sends, so you may ignore the handle. With MPI, the receiver must pass the same `tag`.
        Raises ShapeError if the array is not C-contiguous, or its dtype or device is not supported.
        """
        if nccl := self._nccl_of(array):
            handle = nccl.send(array, target)
        else:
            host = self._on_host(array)
            test = self._communicator.Isend((host, self._mpi.BYTE), target, tag).Test
            handle = Handle(test, partial(wait_until, test, host.nbytes))
        self.progress()
        self._sends.append(handle)
        return handle

    def send(self, array: Array, target: int, tag: int = 0) -> None:
        """Send `array` to rank `target`, and wait until you may change it. Raises errors like `isend`."""
        self.isend(array, target, tag).wait()

    def receive(self, array: Array, source: int, tag: int = 0) -> None:
        """Wait for a message of rank `source`, and write it into `array`. Raises errors like `isend`.

        With MPI, `tag` must be that of the sender.
        """
        if nccl := self._nccl_of(array):
            nccl.receive(array, source)
            return
        host = self._on_host(array, False)
        wait_until(self._communicator.Irecv((host, self._mpi.BYTE), source, tag).Test, host.nbytes)
        self._fill(array, host)

    def progress(self) -> None:
        """Advance pending sends. MPI transfers long messages only during MPI calls."""
        while self._sends and self._sends[0].test():
            self._sends.popleft()

    def finish(self) -> None:
        """Wait until you may change all arrays that were sent. Call this method before the program ends."""
        while self._sends:
            self._sends.popleft().wait()

    # ---- among all ranks ----

    def close(self) -> None:
        """Call `finish`, and free the communicator. Do not use the group afterwards.

        All ranks must call this method.
        """
        self.finish()
        self.barrier()
        self._communicator.Free()

    def allgather(self, array: Array, into: Array, rows: Sequence[int] | None = None) -> None:
        """Write the arrays of all ranks to `into` on every rank, concatenated along axis 0 in rank order.

        Parameters
        ----------
        array : array, shape (rows[rank], ...)
            The array of this rank.
        into : array, shape (sum of rows, ...)
            The array to fill, of the same dtype and on the same device as `array`.
        rows : sequence of int, optional
            The number of rows of each rank. All ranks must pass the same sequence. By default all ranks have
            equal numbers of rows.
        """
        counts = [len(array)] * self.size if rows is None else list(rows)
        shape = (sum(counts), *array.shape[1:])
        if counts[self.rank] != len(array) or (into.shape, into.dtype) != (shape, array.dtype):
            raise ShapeError(
                f"allgather got {_text(array)} and into={_text(into)} on rank {self.rank}: with "
                f"rows={counts}, pass {counts[self.rank]} rows and an into of {array.dtype} {shape}"
            )
        row = array.nbytes // len(array) if len(array) else into.nbytes // max(sum(counts), 1)
        self._allgather(array, into, [count * row for count in counts])

    def sum(self, array: Array) -> Array:
        """Replace `array` by its sum over the ranks, on every rank, and return it.

        Every rank gathers the arrays of all ranks in blocks of 1 MiB and adds them in rank order,
        ((a_0 + a_1) + a_2) + …. The sum is therefore bit-identical on every rank and in every run.
        """
        flat = array.reshape(-1)
        length = max(1, BLOCK // array.itemsize)
        empty = np.empty if type(array) is np.ndarray else self.device.empty
        for start in range(0, flat.size, length):
            part = flat[start : start + length]
            parts = empty((self.size, part.size), array.dtype)
            self._allgather(part, parts, [part.nbytes] * self.size)
            part[...] = parts[0]
            for other in parts[1:]:
                part += other
        return array

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Overwrite `array` on every rank with that of rank `root`. Shapes and dtypes must be equal."""
        if nccl := self._nccl_of(array):
            nccl.broadcast(array, root)
            return
        host = self._on_host(array)
        wait_until(self._communicator.Ibcast((host, self._mpi.BYTE), root).Test, host.nbytes)
        self._fill(array, host)

    def agree(self, **values: object) -> None:
        """Check that all ranks pass the same values, for example ``agree(plan=digest, arguments=text)``.

        Values are compared as text. If they differ, every rank raises the same DistributedError, which names
        the argument, two ranks and their values.
        """
        first, *others = self.gather({name: str(value) for name, value in sorted(values.items())})
        for rank, its in enumerate(others, 1):
            for name in sorted(first.keys() | its.keys()):
                if first.get(name) != its.get(name):
                    raise DistributedError(
                        f"ranks 0 and {rank} differ in {name}: {_shown(first.get(name))} and "
                        f"{_shown(its.get(name))}; start all ranks with the same arguments, files "
                        "and versions"
                    )

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in rank order, on every rank. The values must be picklable."""
        return list(self._communicator.allgather(value))

    def share_choices(self) -> None:
        """Make every rank use the choices between kernels that rank 0 has measured.

        Call this method on every rank at the start of a pass. Ranks exchange choices at passes 1, 2, 4, 8, …
        """
        choices = self.device.choices
        choices.leads = choices.leads and self.rank == 0
        self._passes += 1
        if self.size > 1 and self.device.tunes and not self._passes & (self._passes - 1):
            used = self.gather(choices.used)[0]
            if self.rank:
                choices.adopt(used)

    def barrier(self) -> None:
        """Wait until every rank has called this method."""
        wait_until(self._communicator.Ibarrier().Test)

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is true on at least one rank. All ranks must call this method."""
        flags = np.empty(self.size, np.uint8)
        self._allgather(np.array([flag], np.uint8), flags, [1] * self.size)
        return bool(flags.any())

    def _allgather(self, array: Array, into: Array, sizes: Sequence[int]) -> None:
        """Fill `into` with the arrays of all ranks, which have `sizes` bytes."""
        if nccl := self._nccl_of(array):
            nccl.allgather(array, into, sizes)
            return
        part, every, byte = self._on_host(array), self._on_host(into, False), self._mpi.BYTE
        request = self._communicator.Iallgatherv((part, byte), (every, sizes, byte))
        wait_until(request.Test, into.nbytes)
        self._fill(into, every)

    # ---- arrays ----

    def _nccl_of(self, array: Array) -> Nccl | None:
        """NCCL where an array travels by it. Raises ShapeError for an array that cannot travel."""
        on_host = type(array) is np.ndarray
        if not on_host and not isinstance(array, self.device.xp.ndarray):
            raise ShapeError(
                f"a {type(array).__name__} cannot be sent: pass a NumPy array, or an array of device "
                f"{self.device.name!r}"
            )
        if array.dtype.kind not in KINDS:
            raise ShapeError(f"{_text(array)} cannot be sent: pass an array of bool, integer or real dtype")
        if not array.flags.c_contiguous:
            raise ShapeError(f"{_text(array)} is not C-contiguous: copy it first")
        return None if on_host else self._nccl

    def _on_host(self, array: Array, is_read: bool = True) -> np.ndarray:
        """The array itself on the host; of a device's array a copy, or memory for a message into it."""
        if type(array) is np.ndarray:
            return array
        return self.device.to_host(array) if is_read else np.empty(array.shape, array.dtype)

    def _fill(self, array: Array, host: np.ndarray) -> None:
        if host is not array:
            array[...] = self.device.asarray(host)


class Handle(NamedTuple):
    """A message that was started: `test()` says whether its array may change, `wait()` waits until it may."""

    test: Callable[[], bool]
    wait: Callable[[], None]


def wait_until(done: Callable[[], bool], nbytes: int = 0) -> None:
    """Return when `done()` is true: call it at full speed for a bounded time, then between sleeps.

    A rank that sleeps leaves its core to others where ranks outnumber cores, and Ctrl-C ends its wait. The
    bound grows with the bytes awaited, since a sender waits while its receiver copies.
    """
    end = time.perf_counter() + SPIN + nbytes / RATE
    while not done():
        if time.perf_counter() < end:
            os.sched_yield()
        else:
            time.sleep(PAUSE)


def _text(array: Array) -> str:
    return f"an array of {array.dtype} {tuple(array.shape)}"


def _shown(value: str | None) -> str:
    return "nothing" if value is None else repr(value[:SHOWN]) + "…" * (len(value) > SHOWN)


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

    def send(self, array: Array, target: int) -> Handle:
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

    def start(self, start: Callable[[int], None], *arrays: Array) -> Handle:
        """Call `start(stream)` after the current stream's work, and return the handle of the copy."""
        while self._used and self._used[0][0].done:
            self._used.popleft()
        self._stream.wait_event(self._device.mark())
        with self._stream:
            start(self._stream.ptr)
            done = self._device.mark()
        self._used.append((done, arrays))
        current = self._device.xp.cuda.get_current_stream
        return Handle(lambda: bool(done.done), lambda: current().wait_event(done))
