"""Named arrays laid end to end: a network's parameters, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import CheckpointError, ShapeError
from bppsa_cupy.layers.arguments import as_bits, hold
from bppsa_cupy.network.kept import KeptValues
from bppsa_cupy.network.layout import KeptLayout, lay_out


@dataclass
class Status:
    """What holds of a set of arrays and of every part of it: see `ParameterSet`."""

    masks: Mapping[str, Array] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    version: int = 0
    watched: bool = False
    handed_out: set[str] = field(default_factory=set)


class ParameterSet(Mapping[str, Array]):
    """A dict of name -> array whose arrays are views of one, `flat`, so that an optimizer's step is
    one kernel. The names and the arrays stay; their values are set by `parameters[name][...] = array`,
    between a backward pass and the next forward pass. Between a forward pass and its backward pass an
    assignment in place would give gradients that are those of neither values: call `changed()` after one,
    or set `watched`, and the backward pass is refused.

    flat     (count,) all arrays and the zeros that align them
    masks    of arrays that have one, by name, as `layers.arguments.as_bits`
    version  rises by one whenever an optimizer or `assign` changes the values
    unread   names of arrays whose masked values no pass reads
    layout   how the gradients, and an optimizer's state, are laid out where that is not as `flat` is
    kept     the present values laid out so; None without such a layout
    room     (count + 1,) the memory of `flat`, with one more place after it
    watched  False; True lets every forward pass keep a copy of the values, and its backward pass compare
             them: any change is found then. Takes a copy's memory a pass, and time: 3 % of a step of a small
             network, as much as the step itself of a wide Linear layer
    """

    def __init__(self, device: Device, dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]]) -> None:
        spans, end = lay_out(dtype, shapes)
        self.device, self.dtype = device, dtype
        self.room = device.zeros((end + 1,), dtype)
        self.flat = self.room[:end]
        self._spans, self._status = spans, Status()
        self._views = {name: self.view(self._flat, name) for name in spans}

    layout: KeptLayout | None = None
    kept: KeptValues | None = None

    @property
    def flat(self) -> Array:
        if self.kept is not None:
            self.kept.hand_out()
        self._status.handed_out.update(self._spans)
        return self._flat

    @flat.setter
    def flat(self, array: Array) -> None:
        self._flat = array

    def settled(self) -> Array:
        """`flat`, to be read at once, and neither set nor held."""
        if self.kept is not None:
            self.kept.catch_up()
        return self._flat

    @property
    def handed_out(self) -> set[str]:
        """The names of the arrays that the caller has, and so may set."""
        return self._status.handed_out

    @property
    def raw(self) -> Mapping[str, Array]:
        """The arrays by name, of which those of layers that go by lists need not be up to date."""
        return self._views

    def in_passes(self) -> Mapping[str, Array]:
        """The arrays by name, and of layers that go by lists the kept values alone, (kept,), as of now."""
        if self.kept is None:
            return self._views
        self.kept.refresh()
        return {**self._views, **{name: self.kept.view(name) for name in self.kept.layout.kept}}

    @property
    def masks(self) -> Mapping[str, Array]:
        return self._status.masks

    @property
    def unread(self) -> frozenset[str]:
        return self._status.unread

    @property
    def version(self) -> int:
        return self._status.version

    @property
    def watched(self) -> bool:
        return self._status.watched

    @watched.setter
    def watched(self, value: bool) -> None:
        self._status.watched = value

    def view(self, flat: Array, name: str) -> Array:
        """What belongs to `name` of an array laid out as `flat` is, in the array's shape."""
        span, shape = self._spans[name]
        return flat[span].reshape(shape)

    def part_of(self, names: Sequence[str]) -> slice:
        """Where arrays that follow each other lie in `flat`, up to the array after them."""
        order = list(self._spans)
        if not names:
            return slice(0, 0)
        behind = order.index(names[-1]) + 1
        stop = self._spans[order[behind]][0].start if behind < len(order) else self._flat.size
        return slice(self._spans[names[0]][0].start, stop)

    def is_laid_out_as(self, other: ParameterSet) -> bool:
        """Whether `other` has the same names and shapes, dtype and device."""
        same = (self.device, self.dtype, self._spans) == (other.device, other.dtype, other._spans)
        return same and (
            self.layout is other.layout if self.layout is None else self.layout.is_equal(other.layout)
        )

    def ends_arrays(self, start: Any, stop: Any) -> bool:
        """Whether a part of `flat` begins and ends where arrays do, the zeros after them included."""
        bounds = [*(span.start for span, _ in self._spans.values()), self._flat.size]
        return type(start) is type(stop) is int and start in bounds and stop in bounds and start <= stop

    def __repr__(self) -> str:
        return f"<{len(self)} {self.dtype} arrays of {self._flat.size} values on {self.device.name}>"

    def set_masks(self, masks: Mapping[str, np.ndarray], unread: Iterable[str] = ()) -> None:
        """Take these masks, by name, in place of all there are, or none where the device has too little
        memory (DeviceError); `apply_masks` sets the values. Of `unread` arrays no pass reads what is
        masked."""
        self._status.masks = {
            name: as_bits(self.device, mask, self.dtype) if mask.dtype == bool else mask
            for name, mask in masks.items()
        }
        self._status.unread = frozenset(unread)

    def apply_masks(self, flat: Array = None, *, unread: bool = True) -> None:
        """Set to 0 what the masks hold at 0 in an array laid out as `flat` is; by default in `flat`. Those
        that no pass reads may be left out."""
        for name, mask in self.masks.items():
            if name in self.unread and not unread:
                continue
            hold(self.view(self.settled() if flat is None else flat, name), mask)

    def __getitem__(self, name: str) -> Array:
        if self.kept is not None and name in self.kept.layout.kept:
            self.kept.catch_up()
        self._status.handed_out.add(name)
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def changed(self) -> None:
        """Note that the values are others now."""
        self._status.version += 1

    def watched_values(self) -> Array:
        """A copy of `flat` where the values are watched, else None."""
        return self.settled().copy() if self.watched else None

    def differing(self, flat: Array) -> list[str]:
        """The names of what has other bits in `flat` than in an array laid out like it."""
        bits = np.dtype(f"u{self.dtype.itemsize}")
        other = self.settled().view(bits) != flat.view(bits)
        return [name for name, (span, _) in self._spans.items() if bool(other[span].any())]

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Set every array from one of the same name and shape. Nothing is set where one does not fit.

        Takes NumPy, CuPy or DLPack arrays of any float type. Raises CheckpointError naming the names
        that are missing or unknown, ShapeError naming both shapes, DeviceError where memory is too little.
        """
        check_mapping(arrays)
        known = dict.fromkeys(self.names)
        missing = [name for name in known if name not in arrays]
        unknown = [name for name in arrays if name not in known]
        if missing or unknown:
            raise CheckpointError(
                f"the parameters do not fit: missing {missing or 'none'}, unknown {unknown or 'none'}; "
                f"the network has {list(known)}"
            )
        converted = {name: self.device.asarray(arrays[name], dtype=self.dtype) for name in self}
        for name, array in converted.items():
            if array.shape != self._views[name].shape:
                raise ShapeError(f"{name} has shape {self._views[name].shape}, got {tuple(array.shape)}")
        self.settled()
        for name, array in converted.items():
            self._views[name][...] = array
        if self.kept is not None:
            self.kept.take_all()
        self.changed()

    def to_host(self) -> dict[str, np.ndarray]:
        """Copies on the host, by name."""
        self.settled()
        return {name: np.array(self.device.to_host(array)) for name, array in self._views.items()}

    # ---- among ranks, each of which may hold, or update, a part of a network's parameters; here one does all

    @property
    def names(self) -> list[str]:
        """The names of all of the network's parameters, in their order."""
        return list(self)

    @property
    def own_slice(self) -> slice:
        """What of `flat` this process updates, in whole units of `layout.ALIGNMENT` bytes."""
        return slice(0, self._flat.size)

    def mask_own(self, array: Array) -> None:
        """Set to 0 what the masks hold at 0 in an array laid out as `flat[own_slice]` is."""
        self.apply_masks(array)

    def gather_updates(self) -> None:
        """Let every rank have what each has updated."""

    def gathered(self, own: Array) -> np.ndarray:
        """A host copy of an array laid out as `flat[own_slice]` is, over all of the network's parameters."""
        return np.array(self.device.to_host(own))

    def part(self, whole: np.ndarray) -> np.ndarray:
        """What is laid out as `flat[own_slice]` is, of an array over all of the network's parameters; a
        view."""
        return whole

    def of_all_ranks(self, value: Array) -> Array:
        """(ranks, …) a small array of each rank, in rank order."""
        return value[None]

    def units_of_all_ranks(self, values: Array) -> Array:
        """(units,) of a value for each unit of `flat[own_slice]`, those for all of the network's, in their
        order."""
        return values

    def set_where_any(self, flag: Array) -> None:
        """Set a flag, (1,) int32, where it is set on any rank."""


def check_mapping(arrays: Any) -> None:
    """Raise CheckpointError unless these are arrays by name."""
    if not isinstance(arrays, Mapping):
        raise CheckpointError(
            f"the parameters got a {type(arrays).__name__}: they take arrays by name, as net.state_dict()"
        )


def real_dtype(dtype: Any) -> np.dtype:
    """The dtype of a network, float32 or float64. Raises ShapeError for others."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found not in (np.float32, np.float64):
        raise ShapeError(f"dtype {dtype!r} was asked for: a network is float32 or float64")
    return found
