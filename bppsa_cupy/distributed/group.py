"""The ranks of a run: an MPI communicator and this rank's device."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.distributed.choice import check_means, check_transport, cuda_transport, means
from bppsa_cupy.distributed.launch import begin
from bppsa_cupy.distributed.transport import MpiTransport, Transport
from bppsa_cupy.distributed.waiting import Handle
from bppsa_cupy.distributed.watch import Watch
from bppsa_cupy.errors import DistributedError, ShapeError

#: Kinds of dtypes that travel: bool, signed, unsigned, real.
KINDS = "biuf"
#: Bytes of one rank's part that `sum` gathers at a time.
BLOCK = 1 << 20
#: Characters of a value that an error of `agree` shows.
SHOWN = 200
#: The groups that are not closed, in the order they were made.
_open: list[Group] = []


def import_mpi() -> ModuleType:
    """mpi4py's MPI, which it initialises. Raises DistributedError where it cannot be had."""
    try:
        return begin()
    except ModuleNotFoundError as error:
        raise DistributedError(
            f"ranks were asked for and mpi4py cannot be imported ({error}): install mpi4py and an MPI, as "
            "in pip install mpi4py mpich"
        ) from error
    except (ImportError, RuntimeError) as error:
        raise DistributedError(f"ranks were asked for and MPI does not begin: {error}") from error


def end() -> None:
    """Return when all ranks of all groups that are not closed have come to the end of the program."""
    for group in _open:
        group._begin("end")


class Group:
    """The ranks of an MPI communicator, each with a device.

    communicator  mpi4py's; COMM_WORLD where none is given. The group works on a duplicate of it
    device        a Device, or a name for `get_device`; of several GPUs the name "cuda" (or "auto") takes the
                  one whose number is the rank's within its machine
    transport     how CUDA arrays travel (NumPy arrays are always read and written by MPI itself):
                  "host"  through pinned memory of the host
                  "gpu"   handed to an MPI that knows CUDA, after the current stream is synchronised
                  "nccl"  by NCCL, one rank a GPU; messages are received in the order sent, whatever the tag
    rank, size    this rank's number, and how many there are
    messages      number of messages sent so far, by target; collective calls are not counted here
    bytes         their bytes, by target
    collectives   number of collective calls so far, by name

    Arrays are C-contiguous, of bool, integer or real numbers, and travel as buffers. Every wait tests and
    sleeps in turn (`wait_until`). Making a group, `allgather`, `sum`, `broadcast`, `agree`, `any`, `barrier`
    and `close` are collective: every rank calls them, in the same order, with arrays of the same dtype and
    shape in all. Where ranks do not, DistributedError names two of them and their calls. Sends and posts are
    not collective; messages of one source and tag are received in the order sent.

    Raises DistributedError where mpi4py is missing or the transport cannot be had on some rank.
    """

    def __init__(
        self, communicator: Any = None, device: str | Device = "auto", transport: str = "host"
    ) -> None:
        check_transport(transport)
        self.transport = transport
        mpi = import_mpi()
        self._communicator = (mpi.COMM_WORLD if communicator is None else communicator).Dup()
        self.rank: int = self._communicator.rank
        self.size: int = self._communicator.size
        self.device = get_device(device)
        self._device_array: type = self.device.xp.ndarray
        if isinstance(self.device, CudaDevice) and not isinstance(device, Device):
            neighbours = self._communicator.Split_type(mpi.COMM_TYPE_SHARED)
            self.device.use(neighbours.rank)
            neighbours.Free()
        self.messages: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.collectives: Counter[str] = Counter()
        self._last_tag = int(mpi.COMM_WORLD.Get_attr(mpi.TAG_UB))  # Open MPI has it of this one alone
        self._sends: deque[Handle] = deque()
        self._mpi = MpiTransport(mpi, self._communicator)
        self._watch = Watch(mpi, self._communicator.Dup())
        own = means(self.device, transport, mpi.Get_processor_name())
        check_means([json.loads(text) for text in self._gather_texts(json.dumps(own))])
        self._cuda = cuda_transport(self.device, transport, self._mpi)
        _open.append(self)
        # What calls of all ranks wait for may be a message that another one awaits before it begins its call.
        self._watch.transport.meanwhile = self._mpi.meanwhile

    # ---- from one rank to another ----

    def isend(self, array: Array, target: int, tag: int = 0) -> Handle:
        """Start sending `array`, and do not wait: keep it as it is until the handle is through.

        A handle may be dropped; `finish` waits for all sends. Raises ShapeError where the array cannot
        travel, DistributedError where there is no such rank or tag.
        """
        what = self._check_peer("send to", target, tag)
        transport = self._transport_of(array, what, written=False)
        handle = transport.send(array, target, tag)
        self.messages[target] += 1
        self.bytes[target] += handle.nbytes
        sends = self._sends
        while sends and sends[0].test():
            sends.popleft()
        sends.append(handle)
        return handle

    def send(self, array: Array, target: int, tag: int = 0) -> None:
        """Send `array`, and wait until it may be written again. Raises as `isend`."""
        self.isend(array, target, tag).wait()

    def post(self, array: Array, source: int, tag: int = 0) -> Handle:
        """Await a message into `array`, which is filled when the handle is through. Raises as `isend`.

        The handle raises DistributedError where the message has another number of bytes.
        """
        what = self._check_peer("receive from", source, tag)
        handle = self._transport_of(array, what, written=True).post(array, source, tag)
        handle.late = self._watch.of_message(source, handle.nbytes)
        return handle

    def receive(self, array: Array, source: int, tag: int = 0) -> None:
        """Fill `array` with a message, and wait for it. Raises as `post`."""
        self.post(array, source, tag).wait()

    def first(self, count: int) -> Group | None:
        """A group of the first `count` ranks, with the same device and transport; None on the others.

        Collective. Raises DistributedError unless 1 <= count <= size.
        """
        if not 1 <= count <= self.size:
            raise DistributedError(f"a group of the first {count} ranks: it takes 1 to {self.size}")
        return self._split(0 if self.rank < count else None)

    def split(self, part: int) -> Group:
        """A group of the ranks that give the same number, in their order, with the same device and transport.

        Collective. Raises DistributedError for a number below 0.
        """
        group = self._split(as_integer("a group", "part", part, 0, None, error=DistributedError))
        assert group is not None
        return group

    def _split(self, part: int | None) -> Group | None:
        """The group of those that give the same number; None where that is None."""
        mpi = import_mpi()
        self._begin("split")
        communicator = self._communicator.Split(mpi.UNDEFINED if part is None else part, self.rank)
        if communicator == mpi.COMM_NULL:
            return None
        group = Group(communicator, self.device, self.transport)
        communicator.Free()
        return group

    def progress(self) -> None:
        """Go on with sends under way, without waiting: MPI moves long messages inside of its calls only."""
        self._cuda.advance()
        while self._sends and self._sends[0].test():
            self._sends.popleft()

    def finish(self) -> None:
        """Wait until every array sent may be written again. Call it before the program ends."""
        while self._sends:
            self._sends[0].wait()
            self._sends.popleft()

    def close(self) -> None:
        """`finish`, and give the communicator back; collective. The group is not used after it."""
        self.finish()
        self._begin("close")
        _open.remove(self)
        self._communicator.Free()
        self._watch.free()

    # ---- among all ranks ----

    def allgather(self, array: Array, into: Array, rows: Sequence[int] | None = None) -> None:
        """Fill `into` with the rows of all ranks' arrays, in rank order, on every rank.

        array  (rows[rank], ...)
        into   (sum of rows, ...), of the same dtype
        rows   rows of each rank's array, the same list on every rank; as many as here where None

        Raises ShapeError where the arrays do not fit each other.
        """
        transport = self._transport_of(array, "allgather", written=False)
        if array.ndim == 0:
            raise ShapeError(f"allgather: {_text(array)} was given: it has no rows")
        counts = [len(array)] * self.size if rows is None else list(rows)
        if len(counts) != self.size or counts[self.rank] != len(array):
            raise ShapeError(
                f"allgather of an array of {len(array)} rows on rank {self.rank} of {self.size}: rows "
                f"{counts} tell another number"
            )
        shape = (sum(counts), *array.shape[1:])
        fits = (into.shape, into.dtype) == (shape, array.dtype)
        if self._transport_of(into, "allgather", written=True) is not transport or not fits:
            raise ShapeError(
                f"allgather into {_text(into)}: rows {counts} of {_text(array)} take {array.dtype} {shape} "
                "on the same device"
            )
        self._begin("allgather", into)
        row = array.nbytes // len(array) if len(array) else into.nbytes // max(sum(counts), 1)
        transport.allgather(array, into, [count * row for count in counts])

    def sum(self, array: Array) -> Array:
        """Replace `array` by its sum over the ranks, on every rank, and return it.

        Every rank gathers all arrays, `BLOCK` bytes of each at a time, and adds them in rank order,
        ((a_0 + a_1) + a_2) + …: the bits are the same on every rank and in every run.
        Raises ShapeError where the array holds no numbers, or cannot travel.
        """
        transport = self._transport_of(array, "sum", written=True)
        if array.dtype.kind == "b":
            raise ShapeError(f"sum: {_text(array)} was given: it takes numbers; give an integer array")
        self._begin("sum", array)
        flat = array.reshape(-1)
        length = max(1, BLOCK // array.itemsize)
        empty = np.empty if transport is self._mpi else self.device.empty
        for start in range(0, flat.size, length):
            part = flat[start : start + length]
            parts = empty((self.size, part.size), array.dtype)
            transport.allgather(part, parts, [part.nbytes] * self.size)
            part[...] = parts[0]
            for other in parts[1:]:
                part += other
        return array

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Replace `array` on every rank by that of rank `root`, of the same shape and dtype.

        Raises ShapeError where the array cannot travel, DistributedError where there is no such rank.
        """
        transport = self._transport_of(array, "broadcast", written=True)
        if not 0 <= root < self.size:
            raise DistributedError(f"broadcast from rank {root}: the ranks are 0 to {self.size - 1}")
        self._begin("broadcast", array)
        transport.broadcast(array, root)

    def agree(self, **values: object) -> None:
        """Check that all ranks give the same values, as `agree(plan=digest, arguments=text)`.

        Values are compared as text, by a digest of them all. Raises DistributedError, the same on every
        rank, that names what differs, two ranks and both values.
        """
        own = json.dumps({name: str(value) for name, value in sorted(values.items())})
        self._begin("agree")
        digest = np.frombuffer(hashlib.sha256(own.encode()).digest(), np.uint8)
        digests = np.empty((self.size, digest.size), np.uint8)
        self._mpi.allgather(digest, digests, [digest.size] * self.size)
        if (digests == digests[0]).all():
            return
        first, *others = [json.loads(text) for text in self._gather_texts(own)]
        for rank, its in enumerate(others, 1):
            for name in sorted(first.keys() | its.keys()):
                if first.get(name) != its.get(name):
                    raise DistributedError(
                        f"ranks 0 and {rank} differ in {name}: {_shown(first.get(name))} and "
                        f"{_shown(its.get(name))}; start all ranks with the same arguments, files "
                        "and versions"
                    )

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._begin("barrier")
        self._mpi.wait(self._communicator.Ibarrier())

    def any(self, flag: bool) -> bool:
        """Whether the flag is true on any rank."""
        self._begin("any")
        flags = np.empty(self.size, np.uint8)
        self._mpi.allgather(np.array([flag], np.uint8), flags, [1] * self.size)
        return bool(flags.any())

    def _begin(self, name: str, array: Array | None = None) -> None:
        """Count a collective call, and wait until all ranks have begun it. Raises DistributedError where they
        have begun another."""
        self.collectives[name] += 1
        self._watch.begin(name if array is None else f"{name} of {array.dtype} {tuple(array.shape)}")

    def _gather_texts(self, text: str) -> list[str]:
        """The text of every rank, in rank order."""
        own = np.frombuffer(text.encode(), np.uint8)
        sizes = np.empty(self.size, np.int64)
        self._mpi.allgather(np.array([own.size]), sizes, [sizes.itemsize] * self.size)
        texts = np.empty(sizes.sum(), np.uint8)
        self._mpi.allgather(own, texts, sizes.tolist())
        return [part.tobytes().decode() for part in np.split(texts, np.cumsum(sizes)[:-1])]

    # ---- checks ----

    def _check_peer(self, what: str, peer: int, tag: int) -> str:
        """`what` with the rank it goes to or comes from. Raises DistributedError where there is none."""
        if not 0 <= peer < self.size or peer == self.rank:
            raise DistributedError(
                f"{what} rank {peer} on rank {self.rank} of {self.size}: there is no such other rank"
            )
        if not 0 <= tag <= self._last_tag:
            raise DistributedError(f"{what} rank {peer} with tag {tag}: tags are 0 to {self._last_tag}")
        return f"{what} rank {peer}"

    def _transport_of(self, array: Array, what: str, *, written: bool) -> Transport:
        """The transport of `array`. Raises ShapeError where it cannot travel."""
        if type(array) is np.ndarray:
            transport: Transport = self._mpi
            if written and not array.flags.writeable:
                raise ShapeError(f"{what}: {_text(array)} is read-only: give one that can be written")
        elif isinstance(array, self._device_array):
            transport = self._cuda
        else:
            raise ShapeError(
                f"{what}: a {type(array).__name__} was given: it takes an array of NumPy or of the device "
                f"{self.device.name!r}"
            )
        if array.dtype.kind not in KINDS:
            raise ShapeError(f"{what}: {_text(array)} was given: it takes bool, integer or real numbers")
        if not array.flags.c_contiguous:
            raise ShapeError(f"{what}: {_text(array)} is not C-contiguous: copy it first")
        return transport


def _text(array: Array) -> str:
    return f"an array of {array.dtype} {tuple(array.shape)}"


def _shown(value: str | None) -> str:
    if value is None:
        return "nothing"
    if len(value) <= SHOWN:
        return repr(value)
    return f"{value[:SHOWN]!r}… (SHA-256 {hashlib.sha256(value.encode()).hexdigest()[:16]})"
