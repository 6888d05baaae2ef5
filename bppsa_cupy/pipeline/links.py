"""How activations, gradients and reports pass from stage to stage: within a process, or between ranks."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed import Group, Handle
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD
from bppsa_cupy.pipeline.stage import Parcel

#: Tags of ranks: reports; and from here on those of the arrays of activations and of gradients, in turn.
REPORTS, FIRST = 2, 3
#: Gradients that may be under way when another one is sent.
MOST_SENT = 4
#: The kind of buffers that gradients are copied to before they are sent, beside FORWARD and BACKWARD.
SENT = -1


class Awaited(NamedTuple):
    """A parcel that a rank will take: FORWARD from the stage before, BACKWARD from the one behind."""

    kind: int
    shapes: tuple[tuple[int, ...], ...]


class Links(abc.ABC):
    """What stages hand to each other, each parcel in the order of the batches in which it is made."""

    @abc.abstractmethod
    def put(self, kind: int, stage: int, key: tuple[int, int], parcel: Parcel) -> None:
        """Hand over what `stage` made of the batch and micro-batch `key`; its arrays may be written when it
        returns where `kind` is BACKWARD, and after the pass's own way back where it is FORWARD."""

    @abc.abstractmethod
    def take(self, kind: int, stage: int, key: tuple[int, int]) -> Parcel:
        """What the neighbour of `stage` handed over; waits for it."""

    @abc.abstractmethod
    def done(self, kind: int, parcel: Parcel) -> None:
        """Give back what was taken."""

    @abc.abstractmethod
    def report(self, stage: int, batch: int, values: np.ndarray) -> None:
        """Tell the stage before of a batch: (2,) float64, its loss and whether an update was blocked."""

    @abc.abstractmethod
    def told(self, stage: int, batch: int) -> np.ndarray:
        """What the stage behind has told of a batch; waits for it."""

    @abc.abstractmethod
    def finish(self) -> int:
        """Return when all that was put has been taken: the bytes of the buffers for what was taken."""


@dataclass
class LocalLinks(Links):
    """Between stages of one process."""

    _parcels: dict[tuple[int, int, tuple[int, int]], Parcel] = field(default_factory=dict)
    _reports: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def put(self, kind: int, stage: int, key: tuple[int, int], parcel: Parcel) -> None:
        if kind == BACKWARD:
            parcel = tuple(array.copy() for array in parcel)
        self._parcels[kind, stage, key] = parcel

    def take(self, kind: int, stage: int, key: tuple[int, int]) -> Parcel:
        return self._parcels.pop((kind, stage - 1 if kind == FORWARD else stage + 1, key))

    def done(self, kind: int, parcel: Parcel) -> None:
        pass

    def report(self, stage: int, batch: int, values: np.ndarray) -> None:
        self._reports[stage, batch] = values

    def told(self, stage: int, batch: int) -> np.ndarray:
        return self._reports.pop((stage + 1, batch))

    def finish(self) -> int:
        assert not self._parcels
        return 0


class RankLinks(Links):
    """Between ranks of a group, one a stage: sends do not wait, and the next parcel of each kind is awaited
    before the present one is worked on.

    group     whose rank is the stage
    dtype     of activations and gradients
    expected  what this rank will take, of each kind in the order in which it is taken
    """

    def __init__(self, group: Group, dtype: np.dtype, expected: Iterator[Awaited]) -> None:
        self._group, self._dtype = group, dtype
        self._expected: dict[int, deque[Awaited]] = {FORWARD: deque(), BACKWARD: deque()}
        for awaited in expected:
            self._expected[awaited.kind].append(awaited)
        self._posted: dict[int, deque[tuple[Parcel, list[Handle]]]] = {FORWARD: deque(), BACKWARD: deque()}
        self._free: dict[tuple[int, tuple[int, ...]], list[Array]] = {}
        self._sending: deque[tuple[Array, Handle]] = deque()
        for kind in (FORWARD, BACKWARD):
            self._post(kind)

    def _post(self, kind: int) -> None:
        """Await the next parcel of a kind, if there is one."""
        if not self._expected[kind]:
            return
        source = self._group.rank + (-1 if kind == FORWARD else 1)
        awaited = self._expected[kind].popleft()
        parcel = tuple(self._array(kind, shape) for shape in awaited.shapes)
        handles = [self._group.post(array, source, _tag(kind, index)) for index, array in enumerate(parcel)]
        self._posted[kind].append((parcel, handles))

    def _array(self, kind: int, shape: tuple[int, ...]) -> Array:
        free = self._free.get((kind, shape))
        return free.pop() if free else self._group.device.empty(shape, self._dtype)

    def put(self, kind: int, stage: int, key: tuple[int, int], parcel: Parcel) -> None:
        target = stage + (1 if kind == FORWARD else -1)
        for index, array in enumerate(parcel):
            if kind == BACKWARD:
                array = self._copied(array, MOST_SENT * len(parcel))
            else:
                array = self._group.device.xp.ascontiguousarray(array)
            handle = self._group.isend(array, target, _tag(kind, index))
            if kind == BACKWARD:
                self._sending.append((array, handle))

    def _copied(self, array: Array, most: int) -> Array:
        """A copy in a buffer whose last message is through; waits while more than `most` are under way."""
        if len(self._sending) > most:
            self._sending[0][1].wait()
        while self._sending and self._sending[0][1].test():
            buffer, _ = self._sending.popleft()
            self._free.setdefault((SENT, tuple(buffer.shape)), []).append(buffer)
        copy = self._array(SENT, tuple(array.shape))
        copy[...] = array
        return copy

    def take(self, kind: int, stage: int, key: tuple[int, int]) -> Parcel:
        parcel, handles = self._posted[kind].popleft()
        self._post(kind)
        for handle in handles:
            handle.wait()
        return parcel

    def done(self, kind: int, parcel: Parcel) -> None:
        for array in parcel:
            self._free.setdefault((kind, tuple(array.shape)), []).append(array)

    def report(self, stage: int, batch: int, values: np.ndarray) -> None:
        self._group.isend(values, stage - 1, REPORTS)

    def told(self, stage: int, batch: int) -> np.ndarray:
        values = np.empty(2)
        self._group.receive(values, stage + 1, REPORTS)
        return values

    def finish(self) -> int:
        self._group.finish()
        self._sending.clear()
        taken = (arrays for (kind, _), arrays in self._free.items() if kind != SENT)
        return sum(array.nbytes for arrays in taken for array in arrays)


def _tag(kind: int, index: int) -> int:
    return FIRST + 2 * index + kind
