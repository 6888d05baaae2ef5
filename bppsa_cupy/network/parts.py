"""A part of a network: consecutive layers, on the arrays of the whole."""

from __future__ import annotations

from collections.abc import Mapping

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.network.buffers import BufferSet
from bppsa_cupy.network.parameters import ParameterSet


class ParameterPart(ParameterSet):
    """Arrays of a `ParameterSet` under other names, which follow each other there: the same memory, version,
    masks and `watched`.

    names  of the whole's arrays, by their names here
    """

    def __init__(self, whole: ParameterSet, names: Mapping[str, str]) -> None:
        self.device, self.dtype = whole.device, whole.dtype
        place = whole.part_of(list(names.values()))
        self.flat = whole.settled()[place]
        self._status, self._names = whole._status, dict(names)
        self._spans = {}
        for name, theirs in names.items():
            span, shape = whole._spans[theirs]
            self._spans[name] = slice(span.start - place.start, span.stop - place.start), shape
        self._views = {name: whole.raw[theirs] for name, theirs in names.items()}

    @property
    def masks(self) -> Mapping[str, Array]:
        given = self._status.masks
        return {name: given[theirs] for name, theirs in self._names.items() if theirs in given}

    @property
    def unread(self) -> frozenset[str]:
        given = self._status.unread
        return frozenset(name for name, theirs in self._names.items() if theirs in given)


class BufferPart(BufferSet):
    """Arrays of a `BufferSet` under other names; all of the whole's are kept and restored."""

    def __init__(self, whole: BufferSet, names: Mapping[str, str]) -> None:
        self.device, self.dtype = whole.device, whole.dtype
        self._arrays = {name: whole[theirs] for name, theirs in names.items()}
        self._whole = whole

    def keep(self) -> None:
        self._whole.keep()

    def restore(self) -> None:
        self._whole.restore()


def consecutive(index: slice, count: int) -> range:
    """The layers of a slice, of `count` there are. Raises ShapeError where they do not follow each other."""
    for name in ("start", "stop", "step"):
        if getattr(index, name) is not None:
            as_integer("net[…]", name, getattr(index, name))
    chosen = range(count)[index]
    if chosen.step != 1:
        raise ShapeError(
            f"net[{_shown(index)}] takes layers {list(chosen)} of {count}: a part of a network is of layers "
            "that follow each other, as net[:3]"
        )
    return chosen


def _shown(index: slice) -> str:
    return ":".join("" if at is None else str(at) for at in (index.start, index.stop, index.step))


def names_in_whole(own: Mapping[str, object], first: int) -> dict[str, str]:
    """The whole's names by a part's, whose layers count from `first`."""
    found = {}
    for name in own:
        index, _, rest = name.partition(".")
        found[name] = f"{int(index) + first}.{rest}"
    return found
