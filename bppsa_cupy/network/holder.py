"""What a network holds: layers, parameters, gradients, buffers, and the mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from bppsa_cupy.arguments import as_flag, as_instance, as_integer
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.layers import Context, Layer
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.backward import Backward, BackwardReport
from bppsa_cupy.network.buffers import BufferSet
from bppsa_cupy.network.described import Described
from bppsa_cupy.network.forward import draw
from bppsa_cupy.network.geometry import Geometry, PartGeometry
from bppsa_cupy.network.parameters import ParameterSet, real_dtype
from bppsa_cupy.network.parts import BufferPart, ParameterPart, names_in_whole
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.state import in_order, load_state, matched, state_of

Self = TypeVar("Self", bound="Holder")


class Holder(Described):
    """The part of `Sequential` that makes no pass; see there for the arguments."""

    #: The number of training passes before the latest forward pass, where that was one.
    _passes_before: int | None = None

    def __init__(
        self,
        layers: Sequence[Layer],
        input_shape: Sequence[int],
        seed: int = 0,
        dtype: Any = "float32",
        device: str | Device = "auto",
    ) -> None:
        self._geometry = Geometry(Architecture(layers, input_shape))
        self.dtype = real_dtype(dtype)
        self.device = get_device(device)
        self.training = True
        self.last_pass: Pass | None = None
        self.last_backward: BackwardReport | None = None
        shapes = self.architecture.parameter_shapes()
        self.buffers = BufferSet(self.device, self.dtype, self.architecture.initial_buffers())
        self.parameters = ParameterSet(self.device, self.dtype, shapes)
        self.gradients = ParameterSet(self.device, self.dtype, shapes)
        generator = np.random.default_rng(as_integer("Sequential", "seed", seed, 0, None))
        self.parameters.assign(self.architecture.initialize(generator))
        self.parameters.set_masks(self.architecture.masks)
        self.random_state = {"key": int(generator.integers(2**63)), "passes": 0}
        self._backward = Backward()

    def _share(self, whole: Holder, layers: range) -> None:
        """Hold consecutive layers of another network, in place of `__init__`: see
        `Sequential.__getitem__`."""
        self._geometry = PartGeometry(whole._geometry, layers)
        self.dtype, self.device, self.training = whole.dtype, whole.device, whole.training
        names = names_in_whole(self.architecture.parameter_shapes(), layers.start)
        self.parameters = ParameterPart(whole.parameters, names)
        self.gradients = ParameterPart(whole.gradients, names)
        buffers = names_in_whole(self.architecture.initial_buffers(), layers.start)
        self.buffers = BufferPart(whole.buffers, buffers)
        self.random_state = whole.random_state
        self.last_pass, self.last_backward, self._backward = None, None, Backward()

    @property
    def writes(self) -> bool:
        """Whether this process writes files and speaks; of several ranks one alone does."""
        return True

    @property
    def architecture(self) -> Architecture:
        """The layers with their masks, their shapes and Jacobians, in the present mode; `set_masks` makes
        another one."""
        return self._geometry.current.in_mode(self.training)

    def __len__(self) -> int:
        return len(self.layers)

    def train(self: Self) -> Self:
        """Training mode, for layers that differ in it."""
        self.training = True
        return self

    def eval(self: Self) -> Self:
        """Evaluation mode."""
        self.training = False
        return self

    # ---- masks ----

    def set_masks(self, masks: Mapping[str, Any]) -> None:
        """Give weights these masks, by parameter name, in place of all the network has: those that are 0 or
        False in a mask are set to 0 and stay 0, through the steps of an optimizer whose momentum is older
        too. What the caller sets in place is set back by the next forward pass, and in `state_dict`.

        A plan made for other masks does not fit any more, and raises PlanMismatchError when it is used.
        Raises ShapeError for a name that is no weight of a Conv2d or Linear, and for a mask of another shape,
        DeviceError where the device has too little memory; nothing is set then.
        """
        takes = "arrays by the weight's name"
        as_instance("set_masks", "masks", masks, Mapping, takes)  # type: ignore[type-abstract]
        masked = self._geometry.with_masks(masks)
        self.parameters.set_masks(masked.masks)  # all that can fail for want of memory
        self._geometry.take(masked)
        if self._backward.scans is not None:
            self._backward.scans.clear()
        self.parameters.apply_masks()
        self.parameters.changed()

    # ---- contexts ----

    def _context(self, index: int) -> Context:
        """A new context of one layer, on the network's parameters and gradients."""
        arrays = self.parameters, self.gradients, self.parameters.masks, self.buffers
        ctx = self.architecture.new_context(index, self.device, self.dtype, *arrays)
        ctx.training, ctx.draw = self.training, draw(self.random_state, index)
        return ctx

    def _contexts(self) -> list[Context]:
        return [self._context(index) for index in range(len(self))]

    # ---- state ----

    def _keep_state(self) -> None:
        """Keep what a forward pass of the present mode changes, for `undo_forward`."""
        self._passes_before = None
        if self.training:
            self.buffers.keep()
            self._passes_before = self.random_state["passes"]

    def undo_forward(self) -> None:
        """Set buffers (running statistics) and random state to what they were before the latest forward pass,
        if that was in training mode: for a training step that cannot be ended, as where memory ran out in
        the backward pass, and is to be made again from its beginning. The pass itself stays."""
        if self._passes_before is not None:
            self.buffers.restore()
            self.random_state["passes"] = self._passes_before

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the parameters and buffers on the host, by name, in PyTorch's order; masked weights
        are 0."""
        return state_of(self.architecture, self.parameters, self.buffers)

    def load_state_dict(self, arrays: Mapping[str, Any], *, by_order: bool = False) -> None:
        """Set parameters and buffers from arrays of the same names and shapes, PyTorch's state dicts among
        them. The names may have one prefix before them all ("module.0.weight"), and where a single layer has
        parameters or buffers, be that layer's own: `torch.nn.LSTM(…).state_dict()`.

        With `by_order` names are left aside and arrays taken one after another: a state dict of the same
        network, whose modules have other names. Masked weights are set to 0. Raises CheckpointError or
        ShapeError, and DeviceError where the device has too little memory; sets nothing then.
        """
        ordered = as_flag("load_state_dict", "by_order", by_order)
        named = (in_order if ordered else matched)(self.architecture, arrays)
        load_state(self.architecture, self.parameters, self.buffers, named)
