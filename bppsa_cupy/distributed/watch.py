"""Whether all ranks make the same collective call: told before its data travels, and to ranks that wait."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import traceback
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from bppsa_cupy.distributed.deadlock import Wait, Waits, Watched
from bppsa_cupy.distributed.transport import MpiTransport
from bppsa_cupy.errors import DistributedError

#: Bytes of what a rank says of its call.
TEXT = 400
#: Calls after which what others told is taken, which would pile up where this rank is never late.
OFTEN = 64
#: Where no line of a caller's own lies.
NOT_OWN = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib")))
#: What ranks wait for, made with the first group, and how many groups of these ranks there were.
_waits: list[Waits] = []
_groups: Counter[tuple[int, ...]] = Counter()


class Watch:
    """The collective calls of a group, on a communicator of their own.

    count      how many this rank has begun
    ranks      the numbers of the group's ranks in COMM_WORLD
    transport  by which they wait
    """

    def __init__(self, mpi: ModuleType, communicator: Any) -> None:
        self.count = 0
        self._mpi, self._communicator = mpi, communicator
        if not _waits:
            _waits.append(Waits(mpi))
        self._waits = _waits[0]
        group = communicator.Get_group()
        world = mpi.COMM_WORLD.Get_group()
        self.ranks = tuple(group.Translate_ranks(list(range(communicator.size)), world))
        self._others = tuple(rank for rank in self.ranks if rank != mpi.COMM_WORLD.rank)
        _groups[self.ranks] += 1
        self._name = f"{_groups[self.ranks]} of {self.ranks}"
        self.transport = MpiTransport(mpi, communicator)

    def begin(self, name: str) -> None:
        """Return when all ranks have begun the call of this name.

        Raises DistributedError, on every rank, where they have begun calls of other names.
        """
        self.count += 1
        size = self._communicator.size
        if size == 1:
            return
        own = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=8).digest(), np.uint8)
        every = np.empty((size, own.size), np.uint8)
        byte = self._mpi.BYTE
        request = self._communicator.Iallgather((own, byte), (every, byte))
        call = f"{self.count} {self._name}"
        late = Watched(
            self._waits, lambda number: Wait(self._others, call, 0, f"makes {name} at {_caller()}", number)
        )
        self.transport.wait(request, late=late)
        if not self.count % OFTEN:
            self._waits.hear()
        if (every == every[0]).all():
            return
        other = int((every != every[0]).any(1).argmax())
        texts = self._texts(f"makes {name} at {_caller()}")
        raise DistributedError(
            f"ranks differ in call {self.count} of those that all make together: rank {self.ranks[0]} "
            f"{texts[0]}, rank {self.ranks[other]} {texts[other]}; every rank makes the same calls, also "
            "where callbacks differ"
        )

    def free(self) -> None:
        """Give the communicator back; collective."""
        self._waits.hear()
        self._communicator.Free()

    def of_message(self, source: int, nbytes: int) -> Watched:
        """What a wait for a message calls: raises DistributedError where its source waits for this rank, by
        itself or by others."""
        rank = self.ranks[source]
        return Watched(
            self._waits,
            lambda number: Wait(
                (rank,), "", nbytes, f"waits for a message of rank {rank} at {_caller()}", number
            ),
        )

    def _texts(self, text: str) -> list[str]:
        """What each rank says of its call."""
        own, every = np.zeros(TEXT, np.uint8), np.empty((self._communicator.size, TEXT), np.uint8)
        told = text.encode()[:TEXT]
        own[: len(told)] = np.frombuffer(told, np.uint8)
        byte = self._mpi.BYTE
        self.transport.wait(self._communicator.Iallgather((own, byte), (every, byte)))
        return [told.tobytes().rstrip(b"\0").decode(errors="replace") for told in every]


def _caller() -> str:
    """The caller's line that leads to a call."""
    frames = traceback.extract_stack(sys._getframe())
    own = [frame for frame in frames if not frame.filename.startswith(NOT_OWN)]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"
