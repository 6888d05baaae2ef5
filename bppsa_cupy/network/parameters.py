"""Named arrays laid end to end, of pruned weights only the kept values: a network's parameters, gradients
and buffers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import CheckpointError, ShapeError
from bppsa_cupy.layers.weighted import as_bits, hold
from bppsa_cupy.network.architecture import Architecture

#: Every array starts at a multiple of this many bytes, as vector loads and BLAS like it.
ALIGNMENT = 64

Spans = dict[str, tuple[slice, tuple[int, ...]]]


def lay_out(dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Spans, int]:
    """Return the position in `flat` and the shape of each array, and the number of values of `flat`."""
    step = ALIGNMENT // dtype.itemsize
    spans, end = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        spans[name] = slice(end, end + size), shape
        end += -(-size // step) * step
    return spans, end


class Layout:
    """Positions of named arrays in one flat array.

    Attributes
    ----------
    shapes : mapping of str to tuple of int
        Shapes of the arrays.
    kept : mapping of str to array
        Kept positions, flattened and ascending, of pruned arrays. `flat` stores only these values of them.
    spans : mapping
        Position and shape of each array in `flat`.
    size, dense_size : int
        Size of `flat` with the zeros that align the arrays, and the size without `kept`.
    """

    def __init__(
        self,
        device: Device,
        dtype: np.dtype,
        shapes: Mapping[str, tuple[int, ...]],
        listed: Mapping[str, np.ndarray],
    ) -> None:
        self.device, self.dtype, self.shapes, self.kept = device, dtype, dict(shapes), dict(listed)
        held = {name: (listed[name].size,) if name in listed else shape for name, shape in shapes.items()}
        self.spans, self.size = lay_out(dtype, held)
        self._dense, self.dense_size = lay_out(dtype, shapes)
        self._index = {name: device.asarray(positions.astype(np.int64)) for name, positions in listed.items()}

    def is_equal(self, other: Layout) -> bool:
        """Whether `other` lays out the same values of arrays of the same names, shapes, dtype and device."""
        if self is other:
            return True
        ours, theirs = (
            (layout.device, layout.dtype, layout.shapes, layout.kept.keys()) for layout in (self, other)
        )
        return ours == theirs and all(np.array_equal(self.kept[n], other.kept[n]) for n in self.kept)

    def view(self, flat: Array, name: str) -> Array:
        """The values of an array in `flat`: all in its shape, or (kept,) those that are kept."""
        span, shape = self.spans[name]
        return flat[span].reshape(shape)

    def part_of(self, names: Sequence[str]) -> slice:
        """Return the slice of `flat` that holds consecutive arrays, up to the next array."""
        order = list(self.spans)
        if not names:
            return slice(0, 0)
        behind = order.index(names[-1]) + 1
        stop = self.spans[order[behind]][0].start if behind < len(order) else self.size
        return slice(self.spans[names[0]][0].start, stop)

    def positions(self, name: str, flat: Array) -> Array:
        """The kept positions of a pruned array, where `flat` is: on the host or on the device."""
        return self.kept[name] if isinstance(flat, np.ndarray) else self._index[name]

    def dense(self, flat: Array, name: str) -> Array:
        """A new array of the values of a pruned array, with zeros elsewhere."""
        result = self._zeros(flat, math.prod(self.shapes[name]))
        result[self.positions(name, flat)] = flat[self.spans[name][0]]
        return result.reshape(self.shapes[name])

    def expand(self, flat: Array) -> Array:
        """`flat`, or a new array laid out without `kept`, with zeros for what is not kept."""
        if not self.kept:
            return flat
        result = self._zeros(flat, self.dense_size)
        for name, (place, _) in self._dense.items():
            target = result[place]
            target[self.positions(name, flat) if name in self.kept else ...] = flat[self.spans[name][0]]
        return result

    def compress(self, flat: Array) -> Array:
        """The inverse of `expand`: the values that are kept of an array laid out without `kept`."""
        if not self.kept:
            return flat
        result = self._zeros(flat, self.size)
        for name, (place, _) in self._dense.items():
            source = flat[place]
            result[self.spans[name][0]] = source[self.positions(name, flat)] if name in self.kept else source
        return result

    def _zeros(self, flat: Array, size: int) -> Array:
        return (
            np.zeros(size, flat.dtype)
            if isinstance(flat, np.ndarray)
            else self.device.zeros((size,), flat.dtype)
        )


class ArraySet(Mapping[str, Array]):
    """Arrays of a device by name."""

    device: Device
    arrays: dict[str, Array]

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def to_host(self) -> dict[str, np.ndarray]:
        """Dense copies on the host, by name."""
        return {name: np.array(self.device.to_host(array)) for name, array in self.items()}


class ParameterSet(ArraySet):
    """The parameters or gradients of a network by name, stored in one array, `flat`.

    `parameters[name]` is a view of `flat`. You may write to it: `parameters[name][...] = array`. If a layer
    stores only the remaining values of a pruned weight, `parameters[name]` is a new dense array with zeros
    for the pruned weights. It is read-only on the host. On a GPU, writing to it changes only the copy.
    `parameters[name] = array` sets any parameter, pruned or not, from an array of its shape or a number.

    Change values between a backward pass and the next forward pass. If you change values in place between a
    forward pass and its backward pass, call `changed()`. The backward pass then raises PassError.

    Attributes
    ----------
    flat : array, (count,)
        The values of all arrays, and the zeros that align them.
    layout : Layout
        The position of each array in `flat`. Gradients and optimizer states have the layout of the
        parameters.
    arrays : dict of str to array
        The views of `flat` by name. A pruned weight has shape (n,) if only n remaining values are stored.
    masks : dict of str to array
        The masks of masked weights, as `layers.weighted.as_bits` returns them.
    version : int
        Rises by one whenever an optimizer or an assignment changes the values.
    """

    layout: Layout
    flat: Array

    def __init__(self, device: Device, dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.device, self.dtype = device, dtype
        self.masks: Mapping[str, Array] = {}
        self.version = 0
        layout = Layout(device, dtype, shapes, {})
        self._use(layout, device.zeros((layout.size,), dtype))

    def _use(self, layout: Layout, flat: Array) -> None:
        self.layout, self.flat = layout, flat
        self.arrays = {name: layout.view(flat, name) for name in layout.spans}

    def share(self, other: ParameterSet, layers: range) -> None:
        """Use the arrays of `other` for the layers with indices in `layers`."""
        names = [name for name in other if int(name.partition(".")[0]) in layers]
        self._use(self.layout, other.flat[other.layout.part_of(names)])

    # ---- arrays by name ----

    def __getitem__(self, name: str) -> Array:
        if name not in self.layout.kept:
            return self.arrays[name]
        dense = self.layout.dense(self.flat, name)
        if isinstance(dense, np.ndarray):
            dense.flags.writeable = False
        return dense

    def __setitem__(self, name: str, array: Any) -> None:
        self.assign({name: np.full(self.layout.shapes[name], array) if np.isscalar(array) else array})

    def __repr__(self) -> str:
        return f"<{len(self)} {self.dtype} arrays of {self.layout.size} values on {self.device.name}>"

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Set arrays from others of the same names and shapes; pruned weights stay 0.

        Takes NumPy, CuPy or DLPack arrays of any float type. Raises CheckpointError for an unknown name and
        ShapeError naming both shapes; sets nothing then.
        """
        values = converted(
            self.device, arrays, {name: (s, self.dtype) for name, s in self.layout.shapes.items()}
        )
        for name, value in values.items():
            if name in self.layout.kept:
                value = value.reshape(-1)[self.layout.positions(name, value)]
            self.arrays[name][...] = value
            if name in self.masks and name not in self.layout.kept:
                hold(self.arrays[name], self.masks[name])
        self.changed()

    def changed(self) -> None:
        """Note that the values have changed."""
        self.version += 1

    # ---- masks ----

    def set_masks(self, masks: Mapping[str, np.ndarray], listed: Mapping[str, np.ndarray]) -> None:
        """Replace all masks by these, bool by name, and store only the values at the `listed` positions of
        the arrays that have some. The other values stay."""
        layout = Layout(self.device, self.dtype, self.layout.shapes, listed)
        if not layout.is_equal(self.layout):
            self._use(layout, layout.compress(self.layout.expand(self.flat)))
        self.masks = {name: as_bits(self.device, mask, self.dtype) for name, mask in masks.items()}

    def apply_masks(self, flat: Array = None) -> None:
        """Set to 0 what the masks prune in an array laid out as `flat`, by default in `flat`."""
        for name, mask in self.masks.items():
            if name not in self.layout.kept:
                hold(self.arrays[name] if flat is None else self.layout.view(flat, name), mask)


class BufferSet(ArraySet):
    """The arrays of layers that are not trained, by name, such as running statistics.

    Forward passes and `assign` change the values. Integers are int64, all other arrays have the dtype of the
    network.
    """

    def __init__(self, device: Device, dtype: np.dtype, initial: Mapping[str, np.ndarray]) -> None:
        self.device = device
        self.arrays = {
            name: device.asarray(value.astype(np.int64 if value.dtype.kind == "i" else dtype))
            for name, value in initial.items()
        }

    def share(self, other: BufferSet, layers: range) -> None:
        """Use the arrays of `other` for the layers with indices in `layers`."""
        arrays = (array for name, array in other.items() if int(name.partition(".")[0]) in layers)
        self.arrays = dict(zip(self, arrays, strict=True))

    def converted(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """`arrays` as `assign` takes them. Raises ShapeError naming both shapes."""
        wanted = {name: (array.shape, array.dtype) for name, array in self.items()}
        return converted(self.device, arrays, wanted)

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Set the values from arrays that `converted` returned."""
        for name, array in arrays.items():
            self[name][...] = array


def converted(
    device: Device, arrays: Mapping[str, Any], wanted: Mapping[str, tuple[tuple[int, ...], np.dtype]]
) -> dict[str, Array]:
    """`arrays` on the device, in the wanted dtype by name. Raises CheckpointError for an unknown name,
    ShapeError naming both shapes."""
    result = {}
    for name, array in arrays.items():
        if name not in wanted:
            raise CheckpointError(f"the network has no array {name!r}: use only the names {list(wanted)}")
        shape, dtype = wanted[name]
        result[name] = device.asarray(array, dtype=dtype)
        if result[name].shape != shape:
            raise ShapeError(f"{name} has shape {tuple(result[name].shape)}: pass an array of shape {shape}")
    return result


def check_names(architecture: Architecture, arrays: Mapping[str, Any]) -> None:
    """Raise CheckpointError where arrays have other names than a network's state dict."""
    names = architecture.state_names
    missing = [name for name in names if name not in arrays]
    unknown = [name for name in arrays if name not in names]
    if missing or unknown:
        raise CheckpointError(
            f"the names in the state dict do not match (missing: {missing or 'none'}; unknown: "
            f"{unknown or 'none'}): use the names {list(names)}, or pass by_order=True if only the names "
            "differ"
        )


def without_masks(arrays: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """A state dict and its masks by the weights' names, of one that torch.nn.utils.prune has left, whose
    "weight_orig" and "weight_mask" stand for a weight; others as they are, without masks. Raises
    CheckpointError for parametrizations, which are anything."""
    for name in arrays:
        if ".parametrizations." in f".{name}":
            raise CheckpointError(
                f"the state dict contains {name!r} of a parametrization instead of the weight: call "
                "torch.nn.utils.parametrize.remove_parametrizations on the module first"
            )
    pruned = [str(name).removesuffix("_orig") for name in arrays if str(name).endswith("_orig")]
    masks = {name: arrays[f"{name}_mask"] for name in pruned if f"{name}_mask" in arrays}
    left_out = {f"{name}_mask" for name in masks}
    return {
        name.removesuffix("_orig") if str(name).removesuffix("_orig") in masks else name: array
        for name, array in arrays.items()
        if name not in left_out
    }, masks


def in_order(architecture: Architecture, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of any names by the network's, layer after layer. Raises CheckpointError where their number
    differs.

    Inside a layer, arrays are paired by their last names if these are equal, else by order:
    torch.nn.utils.prune moves a weight behind its bias.
    """
    names, theirs = architecture.state_names, list(arrays)
    if len(theirs) != len(names):
        raise CheckpointError(
            f"the state dict has {len(theirs)} arrays, but the network has {len(names)}: with by_order, "
            "pass a state dict with as many arrays as the network"
        )
    result: dict[str, Any] = {}
    for _, layer in groupby(names, lambda name: name.rpartition(".")[0]):
        ours = {name.rpartition(".")[2]: name for name in layer}
        part = theirs[len(result) : len(result) + len(ours)]
        by_name = {str(name).rpartition(".")[2]: name for name in part}
        pairs = by_name if by_name.keys() == ours.keys() else dict(zip(ours, part, strict=True))
        result |= {name: arrays[pairs[last]] for last, name in ours.items()}
    return result
