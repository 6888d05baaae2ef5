"""The way of arrays between ranks, and the plain one: MPI reads and writes them where they are."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.waiting import Handle, Late, wait_until
from bppsa_cupy.errors import DistributedError


class Transport(abc.ABC):
    """Moves C-contiguous arrays; ranks, tags and shapes are checked already."""

    @abc.abstractmethod
    def send(self, array: Array, target: int, tag: int) -> Handle:
        """Start a message."""

    @abc.abstractmethod
    def post(self, array: Array, source: int, tag: int) -> Handle:
        """Await a message; messages of one source and tag are received in the order they were sent."""

    @abc.abstractmethod
    def broadcast(self, array: Array, root: int) -> None:
        """`array` of rank `root` replaces that of every rank."""

    @abc.abstractmethod
    def allgather(self, array: Array, into: Array, sizes: Sequence[int]) -> None:
        """The arrays of all ranks, in rank order, `sizes` bytes long, fill `into`."""

    def advance(self) -> None:
        """Go on with messages that need this rank's help."""


class MpiTransport(Transport):
    """Messages of MPI, from and into the arrays' own memory.

    ready      called before MPI is given an array: waits until it is written and no longer read
    meanwhile  called between two tests of any wait: goes on with messages that another rank may wait for
               before it comes to what is waited for here
    """

    def __init__(self, mpi: ModuleType, communicator: Any, ready: Callable[[], None] = lambda: None) -> None:
        self.mpi, self.communicator, self._ready = mpi, communicator, ready
        self.meanwhile: Callable[[], None] = lambda: None
        self._byte = mpi.BYTE
        #: Messages under way: MPI uses their arrays even where the caller has dropped the handle.
        self._under_way: set[Handle] = set()

    def send(self, array: Array, target: int, tag: int) -> Handle:
        self._ready()
        request = self.communicator.Isend((array, self._byte), target, tag)
        return _MpiHandle(self, request, array.nbytes, None)

    def post(self, array: Array, source: int, tag: int) -> Handle:
        self._ready()
        request = self.communicator.Irecv((array, self._byte), source, tag)
        return _MpiHandle(self, request, array.nbytes, (source, tag))

    def broadcast(self, array: Array, root: int) -> None:
        self._ready()
        self.wait(self.communicator.Ibcast((array, self._byte), root), array.nbytes)

    def allgather(self, array: Array, into: Array, sizes: Sequence[int]) -> None:
        self._ready()
        request = self.communicator.Iallgatherv((array, self._byte), (into, sizes, self._byte))
        self.wait(request, into.nbytes)

    def wait(self, request: Any, nbytes: int = 0, late: Late | None = None) -> None:
        """Return when a request of MPI is through, of so many bytes; `late` is as in `wait_until`."""

        def done() -> bool:
            self.meanwhile()
            return bool(request.Test())

        wait_until(done, nbytes, late)


class _MpiHandle(Handle):
    """A request of MPI; `origin` is source and tag of a message received, None of one sent."""

    __slots__ = ("_origin", "_request", "_status", "_transport")

    def __init__(
        self, transport: MpiTransport, request: Any, nbytes: int, origin: tuple[int, int] | None
    ) -> None:
        self.nbytes = nbytes
        self._transport, self._request, self._origin = transport, request, origin
        self._status = None if origin is None else transport.mpi.Status()
        transport._under_way.add(self)

    def test(self) -> bool:
        if self._request is None:
            return True
        mpi = self._transport.mpi
        self._transport.meanwhile()
        try:
            if not self._request.Test(self._status):
                return False
        except mpi.Exception as error:
            self._end()
            if self._origin is None or error.Get_error_class() != mpi.ERR_TRUNCATE:
                raise
            raise self._misfit(f"more than {self.nbytes}") from error
        self._end()
        if self._status is not None and self._status.Get_count(mpi.BYTE) != self.nbytes:
            raise self._misfit(str(self._status.Get_count(mpi.BYTE)))
        return True

    def _end(self) -> None:
        self._request = None
        self._transport._under_way.discard(self)

    def _misfit(self, sent: str) -> DistributedError:
        assert self._origin is not None
        source, tag = self._origin
        return DistributedError(
            f"a message of {sent} bytes came from rank {source} with tag {tag}, the array to receive it has "
            f"{self.nbytes}: both must have the same shape and dtype"
        )
