"""Named arrays laid end to end: a network's parameters, their gradients, and its buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import CheckpointError, ShapeError
from bppsa_cupy.layers.arguments import as_bits, hold
from bppsa_cupy.network.layout import Layout, lay_out


class ParameterSet(Mapping[str, Array]):
    """A network's parameters or gradients by name, stored in one array, `flat`.

    `parameters[name]` is a view of `flat`, which may be written in place: `parameters[name][...] = array`.
    Only the kept values of a pruned weight are stored where its layer computes with a list of them. Then
    `parameters[name]` is a new dense array with zeros for pruned weights. It is read-only on the host; on a
    GPU a write into it changes the copy alone. `parameters[name] = array` sets any parameter, pruned or not,
    from an array of its shape or a number.

    Change values between a backward pass and the next forward pass. After a change in place between a forward
    pass and its backward pass call `changed()`: the backward pass is then refused.

    Attributes
    ----------
    flat : array, (count,)
        The values of all arrays, and the zeros that align them.
    layout : Layout
        The position of each array in `flat`. Gradients and optimizer states have the layout of the
        parameters.
    arrays : dict of str to array
        The views of `flat` by name. The view of a pruned weight is (kept,).
    masks : dict of str to array
        The masks of masked weights, as `layers.arguments.as_bits` returns them.
    version : int
        Rises by one whenever an optimizer or an assignment changes the values.
    """

    layout: Layout
    flat: Array
    arrays: dict[str, Array]

    def __init__(self, device: Device, dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.device, self.dtype = device, dtype
        self.masks: Mapping[str, Array] = {}
        self.version = 0
        layout = Layout(device, dtype, shapes, {})
        self._use(layout, device.zeros((layout.size,), dtype))

    def _use(self, layout: Layout, flat: Array) -> None:
        self.layout, self.flat = layout, flat
        self.arrays = {name: layout.view(flat, name) for name in layout.spans}

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

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

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

    def to_host(self) -> dict[str, np.ndarray]:
        """Dense copies on the host, by name."""
        return {name: np.array(self.device.to_host(array)) for name, array in self.items()}

    # ---- masks ----

    def set_masks(self, masks: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> None:
        """Take these masks, bool by name, in place of all there are, and store only the values at the `kept`
        positions of the arrays that have some. The other values stay."""
        layout = Layout(self.device, self.dtype, self.layout.shapes, kept)
        if not layout.is_equal(self.layout):
            self._use(layout, layout.compress(self.layout.expand(self.flat)))
        self.masks = {name: as_bits(self.device, mask, self.dtype) for name, mask in masks.items()}

    def apply_masks(self, flat: Array = None) -> None:
        """Set to 0 what the masks prune in an array laid out as `flat`, by default in `flat`."""
        for name, mask in self.masks.items():
            if name not in self.layout.kept:
                hold(self.arrays[name] if flat is None else self.layout.view(flat, name), mask)

    @property
    def ranks(self) -> Any:
        """The object that shares the arrays among ranks (`distributed.parameters`); None in one process."""
        return None


class BufferSet(Mapping[str, Array]):
    """A dict of name -> array of what layers hold beside their parameters: no gradient, no optimizer.

    Forward passes, `assign` and `restore` change the values. Integers are int64, all other arrays have the
    network's dtype.
    """

    def __init__(self, device: Device, dtype: np.dtype, initial: Mapping[str, np.ndarray]) -> None:
        self.device, self.dtype = device, dtype
        kinds = {n: np.dtype(np.int64) if v.dtype.kind == "i" else dtype for n, v in initial.items()}
        sizes = {name: (value.size * kinds[name].itemsize,) for name, value in initial.items()}
        spans, end = lay_out(np.dtype(np.uint8), sizes)
        # The bytes of all arrays: one copy saves them.
        self._all: Array = device.empty((end,), np.uint8)
        self._saved: Array = None
        self._arrays = {}
        for name, value in initial.items():
            array = self._all[spans[name][0]].view(kinds[name]).reshape(value.shape)
            array[...] = device.asarray(value, dtype=kinds[name])
            self._arrays[name] = array

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def converted(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """`arrays` as `assign` takes them. Raises ShapeError naming both shapes."""
        wanted = {name: (array.shape, array.dtype) for name, array in self.items()}
        return converted(self.device, arrays, wanted)

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Set the values from arrays that `converted` returned."""
        for name, array in arrays.items():
            self[name][...] = array

    def keep(self) -> None:
        """Save a copy of the values, in place of the last copy."""
        if self:
            if self._saved is None:
                self._saved = self.device.empty(self._all.shape, self._all.dtype)
            self._saved[...] = self._all

    def restore(self) -> None:
        """Set the values to the saved copy."""
        if self:
            self._all[...] = self._saved

    def to_host(self) -> dict[str, np.ndarray]:
        """Copies on the host, by name."""
        return {name: np.array(self.device.to_host(array)) for name, array in self.items()}


def converted(
    device: Device, arrays: Mapping[str, Any], wanted: Mapping[str, tuple[tuple[int, ...], np.dtype]]
) -> dict[str, Array]:
    """`arrays` on the device, in the wanted dtype by name. Raises CheckpointError for an unknown name,
    ShapeError naming both shapes."""
    result = {}
    for name, array in arrays.items():
        if name not in wanted:
            raise CheckpointError(f"the network has no array {name!r}: use names from {list(wanted)}")
        shape, dtype = wanted[name]
        result[name] = device.asarray(array, dtype=dtype)
        if result[name].shape != shape:
            raise ShapeError(f"got {name} of shape {tuple(result[name].shape)}: pass shape {shape}")
    return result


def check_mapping(arrays: Any) -> None:
    """Raise CheckpointError unless these are arrays by name."""
    if not isinstance(arrays, Mapping):
        raise CheckpointError(
            f"load_state_dict got a {type(arrays).__name__}: pass arrays by name, such as net.state_dict()"
        )


def real_dtype(dtype: Any) -> np.dtype:
    """The dtype of a network, float32 or float64. Raises ShapeError for others."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found not in (np.float32, np.float64):
        raise ShapeError(f"Sequential got dtype={dtype!r}: pass float32 or float64")
    return found
