"""Named arrays laid end to end: a network's parameters, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import CheckpointError, ShapeError

#: Every array starts at a multiple of this many bytes, as vector loads and BLAS like it.
ALIGNMENT = 64


@dataclass
class Status:
    """What holds of a set of arrays and of every part of it: see `ParameterSet`."""

    masks: Mapping[str, Array] = field(default_factory=dict)
    version: int = 0
    watched: bool = False


class ParameterSet(Mapping[str, Array]):
    """A dict of name -> array whose arrays are views of one, `flat`, so that an optimizer's step is
    one kernel. The names and the arrays stay; their values are set by `parameters[name][...] = array`,
    between a backward pass and the next forward pass. Between a forward pass and its backward pass an
    assignment in place would give gradients that are those of neither values: call `changed()` after one,
    or set `watched`, and the backward pass is refused.

    flat     (count,) all arrays and the zeros that align them
    masks    of arrays that have one, by name: 0 where the values are held at 0, 1 elsewhere
    version  rises by one whenever an optimizer or `assign` changes the values
    watched  False; True lets every forward pass keep a copy of the values, and its backward pass compare
             them: any change is found then. Takes a copy's memory a pass, and time: 3 % of a step of a small
             network, as much as the step itself of a wide Linear layer
    """

    def __init__(self, device: Device, dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]]) -> None:
        spans, end = lay_out(dtype, shapes)
        self.device, self.dtype = device, dtype
        self.flat = device.zeros((end,), dtype)
        self._spans, self._status = spans, Status()
        self._views = {name: self.view(self.flat, name) for name in spans}

    @property
    def masks(self) -> Mapping[str, Array]:
        return self._status.masks

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
        """Where arrays that follow each other lie in `flat`, up to the array behind them."""
        order = list(self._spans)
        if not names:
            return slice(0, 0)
        behind = order.index(names[-1]) + 1
        stop = self._spans[order[behind]][0].start if behind < len(order) else self.flat.size
        return slice(self._spans[names[0]][0].start, stop)

    def is_laid_out_as(self, other: ParameterSet) -> bool:
        """Whether `other` has the same names and shapes, dtype and device."""
        return (self.device, self.dtype, self._spans) == (other.device, other.dtype, other._spans)

    def ends_arrays(self, start: Any, stop: Any) -> bool:
        """Whether a part of `flat` begins and ends where arrays do, the zeros behind them included."""
        bounds = [*(span.start for span, _ in self._spans.values()), self.flat.size]
        return type(start) is type(stop) is int and start in bounds and stop in bounds and start <= stop

    def __repr__(self) -> str:
        return f"<{len(self)} {self.dtype} arrays of {self.flat.size} values on {self.device.name}>"

    def set_masks(self, masks: Mapping[str, np.ndarray]) -> None:
        """Take these masks, by name, in place of all there are, or none where the device has too little
        memory (DeviceError); `apply_masks` sets the values."""
        self._status.masks = {
            name: self.device.asarray(mask, dtype=self.dtype) for name, mask in masks.items()
        }

    def apply_masks(self, flat: Array = None) -> None:
        """Set to 0 what the masks hold at 0 in an array laid out as `flat` is; by default in `flat`."""
        for name, mask in self.masks.items():
            self.view(self.flat if flat is None else flat, name)[...] *= mask

    def __getitem__(self, name: str) -> Array:
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
        return self.flat.copy() if self.watched else None

    def differing(self, flat: Array) -> list[str]:
        """The names of what has other bits in `flat` than in an array laid out like it."""
        bits = np.dtype(f"u{self.dtype.itemsize}")
        other = self.flat.view(bits) != flat.view(bits)
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
            if array.shape != self[name].shape:
                raise ShapeError(f"{name} has shape {self[name].shape}, got {tuple(array.shape)}")
        for name, array in converted.items():
            self[name][...] = array
        self.changed()

    def to_host(self) -> dict[str, np.ndarray]:
        """Copies on the host, by name."""
        return {name: np.array(self.device.to_host(array)) for name, array in self.items()}

    # ---- among ranks, each of which may hold a part of a network's parameters; here one holds all ----

    @property
    def names(self) -> list[str]:
        """The names of all of the network's parameters, in their order."""
        return list(self)

    def gathered(self, flat: Array) -> np.ndarray:
        """A host copy of an array laid out as `flat` is, over all of the network's parameters."""
        return np.array(self.device.to_host(flat))

    def part(self, whole: np.ndarray) -> np.ndarray:
        """What of an array over all of the network's parameters is laid out as `flat` is; a view."""
        return whole

    def of_all_ranks(self, value: Array) -> Array:
        """(ranks, …) a small array of each rank, in rank order."""
        return value[None]

    def set_where_any(self, flag: Array) -> None:
        """Set a flag, (1,) int32, where it is set on any rank."""


Spans = dict[str, tuple[slice, tuple[int, ...]]]


def lay_out(dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Spans, int]:
    """Where each array lies in `flat`, with its shape, by name; and the values of `flat`."""
    step = ALIGNMENT // dtype.itemsize
    spans, end = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        spans[name] = slice(end, end + size), shape
        end += -(-size // step) * step
    return spans, end


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
