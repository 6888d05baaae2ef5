"""How activations, gradients and reports pass from stage to stage: within a process, or between ranks."""

from __future__ import annotations

import abc
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed import Group, Handle
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD
from bppsa_cupy.pipeline.stage import Parcel

#: Tags of ranks: reports; and from here on those of the arrays of activations and of gradients by stage, in
#: turn.
REPORTS, FIRST = 2, 3
#: Gradients that may be under way when another one is sent.
MOST_SENT = 4
#: The kind of buffers that gradients are copied to before they are sent, beside FORWARD and BACKWARD.
SENT = -1


class Awaited(NamedTuple):
    """A parcel that a rank will take.

    source  the rank that sends it
    kind    FORWARD from the stage before, BACKWARD from the next one
    stage   that takes it
    key     batch and micro-batch
    shapes  of its arrays
    """

    source: int
    kind: int
    stage: int
    key: tuple[int, int]
    shapes: tuple[tuple[int, ...], ...]


class Links(abc.ABC):
    """What stages hand to each other."""

    @abc.abstractmethod
    def put(self, kind: int, stage: int, key: tuple[int, int], parcel: Parcel) -> None:
        """Hand over what `stage` made of the batch and micro-batch `key`; its arrays may be written when it
        returns where `kind` is BACKWARD, and after the pass's own way back where it is FORWARD."""

    @abc.abstractmethod
    def take(self, kind: int, stage: int, key: tuple[int, int]) -> Parcel:
        """What the neighbour of `stage` handed over; waits for it."""

    @abc.abstractmethod
    def done(self, kind: int, stage: int, parcel: Parcel) -> None:
        """Give back what a stage has taken."""

    @abc.abstractmethod
    def report(self, stage: int, batch: int, values: np.ndarray) -> None:
        """Tell the stage before of a batch: (2,) float64, its loss and whether an update was blocked."""

    @abc.abstractmethod
    def told(self, stage: int, batch: int) -> np.ndarray:
        """What the next stage has told of a batch; waits for it."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Return when all that was put has been taken."""


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

    def done(self, kind: int, stage: int, parcel: Parcel) -> None:
        pass

    def report(self, stage: int, batch: int, values: np.ndarray) -> None:
        self._reports[stage, batch] = values

    def told(self, stage: int, batch: int) -> np.ndarray:
        return self._reports.pop((stage + 1, batch))

    def finish(self) -> None:
        assert not self._parcels


class RankLinks(Links):
    """Between ranks of a group, rank r with stage r: sends do not wait, and from each rank the next parcel is
    awaited before the present one is worked on.

    dtype     of activations and gradients
    expected  what this rank will take, from each source in the order in which it sends
    """

    def __init__(self, group: Group, dtype: np.dtype, expected: Iterable[Awaited]) -> None:
        self._group, self._dtype = group, dtype
        self._expected: dict[int, deque[Awaited]] = defaultdict(deque)
        for awaited in expected:
            self._expected[awaited.source].append(awaited)
        self._posted: dict[tuple[int, int, tuple[int, int]], tuple[Parcel, list[Handle]]] = {}
        self._free: dict[tuple[int, int, tuple[int, ...]], list[Array]] = defaultdict(list)
        self._sending: dict[int, deque[tuple[Array, Handle]]] = defaultdict(deque)
        for source in list(self._expected):
            self._post(source)

    def _tag(self, kind: int, target: int, index: int) -> int:
        """Of an array of a parcel for a stage."""
        return FIRST + 2 * (index * self._group.size + target) + kind

    def _post(self, source: int) -> None:
        """Await the next parcel of a rank, if there is one."""
        if not self._expected[source]:
            return
        _, kind, stage, key, shapes = self._expected[source].popleft()
        parcel = tuple(self._array(kind, stage, shape) for shape in shapes)
        handles = [
            self._group.post(array, source, self._tag(kind, stage, index))
            for index, array in enumerate(parcel)
        ]
        self._posted[kind, stage, key] = parcel, handles

    def _array(self, kind: int, stage: int, shape: tuple[int, ...]) -> Array:
        free = self._free[kind, stage, shape]
        return free.pop() if free else self._group.device.empty(shape, self._dtype)

    def put(self, kind: int, stage: int, key: tuple[int, int], parcel: Parcel) -> None:
        target = stage + (1 if kind == FORWARD else -1)
        for index, array in enumerate(parcel):
            if kind == BACKWARD:
                array = self._copied(stage, array, MOST_SENT * len(parcel))
            else:
                array = self._group.device.xp.ascontiguousarray(array)
            handle = self._group.isend(array, target, self._tag(kind, target, index))
            if kind == BACKWARD:
                self._sending[stage].append((array, handle))

    def _copied(self, stage: int, array: Array, most: int) -> Array:
        """A copy in a buffer whose last message is through; waits while more than `most` of the stage are
        under way."""
        sending = self._sending[stage]
        if len(sending) > most:
            sending[0][1].wait()
        while sending and sending[0][1].test():
            buffer, _ = sending.popleft()
            self._free[SENT, stage, tuple(buffer.shape)].append(buffer)
        copy = self._array(SENT, stage, tuple(array.shape))
        copy[...] = array
        return copy

    def take(self, kind: int, stage: int, key: tuple[int, int]) -> Parcel:
        source = stage - 1 if kind == FORWARD else stage + 1
        parcel, handles = self._posted.pop((kind, stage, key))
        self._post(source)
        for handle in handles:
            handle.wait()
        return parcel

    def done(self, kind: int, stage: int, parcel: Parcel) -> None:
        for array in parcel:
            self._free[kind, stage, tuple(array.shape)].append(array)

    def report(self, stage: int, batch: int, values: np.ndarray) -> None:
        self._group.isend(values, stage - 1, REPORTS)

    def told(self, stage: int, batch: int) -> np.ndarray:
        values = np.empty(2)
        self._group.receive(values, stage + 1, REPORTS)
        return values

    def finish(self) -> None:
        self._group.finish()
        self._sending.clear()
