"""Whether all ranks make the same collective call: told before its data travels, and to ranks that wait."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.distributed.transport import MpiTransport
from bppsa_cupy.errors import DistributedError

#: Seconds of waiting after which a rank tells the others, or asks what they told.
LATE = 2.0
#: Seconds for which two ranks wait for each other before one says so, beside those of a message's bytes.
STUCK, RATE = 3.0, 100e6
#: The tag of what a rank tells that waits, and the bytes of it.
TOLD, TEXT = 1, 400
#: Where no line of a caller's own lies.
NOT_OWN = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib")))


class Watch:
    """The collective calls of a group, on a communicator of their own.

    count      how many this rank has begun
    transport  by which they wait
    """

    def __init__(self, mpi: Any, communicator: Any) -> None:
        self.count = 0
        self._mpi, self._communicator = mpi, communicator
        self.transport = MpiTransport(mpi, communicator)
        self._name = ""
        self._heard: dict[int, tuple[int, str]] = {}
        self._told: list[Any] = []

    def begin(self, name: str) -> None:
        """Return when all ranks have begun the call of this name.

        Raises DistributedError, on every rank, where they have begun calls of other names.
        """
        self.count += 1
        self._name = name
        size = self._communicator.size
        if size == 1:
            return
        own = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=8).digest(), np.uint8)
        every = np.empty((size, own.size), np.uint8)
        byte, start = self._mpi.BYTE, time.monotonic()
        request = self._communicator.Iallgather((own, byte), (every, byte))
        tells = iter([True])

        def late() -> None:
            if time.monotonic() - start > LATE and next(tells, False):
                self._tell()

        self.transport.wait(request, late=late)
        if (every == every[0]).all():
            return
        other = int((every != every[0]).any(1).argmax())
        texts = self._texts()
        raise DistributedError(
            f"ranks differ in call {self.count} of those that all make together: rank 0 {texts[0]}, "
            f"rank {other} {texts[other]}; every rank makes the same calls, also where callbacks differ"
        )

    def free(self) -> None:
        """Give the communicator back; collective."""
        self._hear()
        self._communicator.Free()

    def of_message(self, source: int, nbytes: int) -> Callable[[], None]:
        """What a wait for a message calls from time to time: raises DistributedError where its source waits
        in a collective call that this rank has not begun."""
        start, since = time.monotonic(), 0.0

        def late() -> None:
            nonlocal since
            now = time.monotonic()
            if now - start < LATE:
                return
            self._hear()
            number, text = self._heard.get(source, (0, ""))
            if number <= self.count:
                return
            since = since or now
            if now - since > STUCK + nbytes / RATE:
                raise DistributedError(
                    f"rank {self._communicator.rank} waits for a message of rank {source}, which waits for "
                    f"all ranks: it {text}; every rank makes the same calls, also where callbacks differ"
                )

        return late

    def _tell(self) -> None:
        told = np.zeros(TEXT, np.uint8)
        text = f"{self.count} {self._said()}".encode()[:TEXT]
        told[: len(text)] = np.frombuffer(text, np.uint8)
        for rank in range(self._communicator.size):
            if rank != self._communicator.rank:
                request = self._communicator.Isend((told, self._mpi.BYTE), rank, TOLD)
                self._told.append((request, told))

    def _hear(self) -> None:
        status, told = self._mpi.Status(), np.empty(TEXT, np.uint8)
        while self._communicator.Iprobe(self._mpi.ANY_SOURCE, TOLD, status):
            self._communicator.Recv((told, self._mpi.BYTE), status.source, TOLD)
            number, _, text = told.tobytes().rstrip(b"\0").decode(errors="replace").partition(" ")
            self._heard[status.source] = int(number), text

    def _texts(self) -> list[str]:
        """What each rank says of its call."""
        own, every = np.zeros(TEXT, np.uint8), np.empty((self._communicator.size, TEXT), np.uint8)
        text = self._said().encode()[:TEXT]
        own[: len(text)] = np.frombuffer(text, np.uint8)
        byte = self._mpi.BYTE
        self.transport.wait(self._communicator.Iallgather((own, byte), (every, byte)))
        return [told.tobytes().rstrip(b"\0").decode(errors="replace") for told in every]

    def _said(self) -> str:
        """The call, and the caller's line that leads to it."""
        frames = traceback.extract_stack(sys._getframe())
        own = [frame for frame in frames if not frame.filename.startswith(NOT_OWN)]
        frame = (own or frames)[-1]
        return f"makes {self._name} at {Path(frame.filename).name}:{frame.lineno}"
