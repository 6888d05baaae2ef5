"""Contexts of passes that are over, with their buffers and bound launches, for passes to come."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from bppsa_cupy.devices import Array
from bppsa_cupy.layers import Context, Layer, Shape
from bppsa_cupy.layers.recurrent import RecurrentContext

#: A layer's pool holds at most this many times what its passes have taken at once.
SPARE = 2


#: What a context's launches are bound to: where it works, with which dtype, the shape of the input, the batch
#: included, where parameters and buffers lie, and whether a way back may follow.
Key = tuple[Hashable, str, Shape, Hashable, bool]


class Shapes(NamedTuple):
    """The shapes of the inputs and results of a pass of one layer.

    Attributes
    ----------
    batch : int
        Samples.
    output : Shape
        Shape of the output, in the caller's layout.
    states : tuple of Shape
        Shapes of the states, (num_layers D, B, H); empty for a layer that is not recurrent.
    by_time, output_by_time : bool
        Whether input and output are (T, B, columns).
    """

    batch: int
    output: Shape
    states: tuple[Shape, ...]
    by_time: bool
    output_by_time: bool


@dataclass(eq=False)
class Slot:
    """A context of one layer, with the shapes of its passes, and the bytes of its buffers as `Pool.measure`
    found them. `captured` says that a graph works on it, to which it belongs from then on."""

    ctx: Context
    key: Key
    shapes: Shapes
    nbytes: int = -1
    captured: bool = False

    @property
    def place(self) -> Hashable:
        """The device and the dtype of the slot."""
        return self.key[:2]


class Pool:
    """The contexts of one layer: those that passes use are counted, those that none uses are kept.

    A pass gets one of its own key. Where there is none it gets a new one, until all together hold SPARE times
    the most that was in use at once; from then on a recurrent one that has waited for longest, which binds
    its launches anew. What is beyond that limit is dropped.

    Attributes
    ----------
    lock
        Held while contexts move; a pass that is dropped gives its own back, which Python may do amid any
        statement of the same thread.
    gradients : dict of Hashable to dict of str to array
        Buffers by place and parameter name, which the backward passes use in turn.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.gradients: dict[Hashable, dict[str, Array]] = {}
        self._free: list[Slot] = []
        self._free_bytes = self._used_bytes = self._peak = 0

    def find(self, key: Key) -> Slot | None:
        """A free context of this key, which is in use then."""
        with self.lock:
            for number, slot in enumerate(self._free):
                if slot.key == key:
                    self._used_bytes += slot.nbytes
                    self._remove(number)
                    return slot
        return None

    def acquire(
        self,
        key: Key,
        shapes: Shapes,
        parameters: dict[str, Array],
        make: Callable[[], Context],
        device_captures: bool = False,
    ) -> Slot:
        """A context to use on these parameters, of a key that `find` has none of: made, or bound anew. In a
        capture it is a new one, which the graph keeps."""
        with self.lock:
            if device_captures:
                return Slot(make(), key, shapes, captured=True)
            if self._free_bytes + self._used_bytes >= SPARE * self._peak:
                for number, slot in enumerate(self._free):
                    if slot.place == key[:2]:
                        if not isinstance(slot.ctx, RecurrentContext):
                            break
                        slot.ctx.rebind(parameters)
                        self._remove(number)
                        return Slot(slot.ctx, key, shapes)
            return Slot(make(), key, shapes)

    def _remove(self, number: int) -> None:
        self._free_bytes -= self._free.pop(number).nbytes

    def measure(self, slot: Slot) -> None:
        """Count the buffers of a context in use, which it has by now."""
        if slot.nbytes < 0:
            with self.lock:
                slot.nbytes = sum(array.nbytes for array in slot.ctx.kept())
                self._used_bytes += slot.nbytes
                self._peak = max(self._peak, self._used_bytes)

    def give(self, slot: Slot) -> None:
        """Take a context back, which lets go of its pass; one that was not measured, as its pass failed, is
        dropped."""
        slot.ctx.let_go()
        if slot.nbytes < 0:
            return
        with self.lock:
            self._used_bytes -= slot.nbytes
            if slot.captured:
                return
            self._free.append(slot)
            self._free_bytes += slot.nbytes
            while self._free_bytes + self._used_bytes > SPARE * self._peak:
                self._remove(0)

    def clear(self) -> None:
        """Drop what no pass uses."""
        with self.lock:
            self._free.clear()
            self.gradients.clear()
            self._free_bytes, self._peak = 0, self._used_bytes


_pools: weakref.WeakKeyDictionary[Layer, Pool] = weakref.WeakKeyDictionary()


def pool_of(layer: Layer) -> Pool:
    """The pool of a layer, which ends with it."""
    pool = _pools.get(layer)
    if pool is None:
        pool = _pools[layer] = Pool()
    return pool


def release_memory() -> None:
    """Free the memory that is cached for later passes of all layers.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.functional.release_memory()
    """
    for pool in list(_pools.values()):
        pool.clear()
