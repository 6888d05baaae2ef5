"""A network over sequences, a step at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.layers.residual import walk
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.forward import draw, take_input


class Steps:
    """What `net.steps()` gives: called with the input of a step (B, F), it puts out that step's output, and
    keeps the states of all recurrent layers, those inside of residual blocks too, for the next one.

        steps = net.steps()
        for t in range(T):
            y = steps(x[:, t])

    It is in evaluation mode, on the network's present parameters. On the host it leaves the bits of a pass
    over all steps whose recurrent layers go serially. Raises ShapeError, with the layer, where one needs more
    of a sequence than the step and a state, and for a batch of another size than the first.
    """

    def __init__(self, whole: Architecture, new_context: Callable[[int, Architecture], Context]) -> None:
        shape = whole.input_shape
        if len(shape) != 2:
            raise ShapeError(f"steps takes a network over sequences (T, F), and this one takes {shape}")
        self._architecture = Architecture(whole.layers, (1, shape[1]), False)
        for place in walk(self._architecture):
            if not place.layer.steps_alone:
                raise ShapeError(
                    f"steps: layer {place.path}, {place.layer!r}, needs more than its state: it takes whole "
                    "sequences"
                )
        self._contexts = [new_context(index, self._architecture) for index in range(len(whole.layers))]
        self._device, self._dtype = self._contexts[0].device, self._contexts[0].dtype
        for ctx in self._contexts:
            ctx.training = False
        self._batch: int | None = None

    def __call__(self, x: Any) -> Array:
        """The output of a step, (B, ...), a copy, on the device."""
        features = self._architecture.input_shape[1]

        def check(shape: tuple[int, ...]) -> None:
            if len(shape) != 2 or shape[1] != features or shape[0] != (self._batch or shape[0]):
                batch = "B" if self._batch is None else self._batch
                raise ShapeError(f"a step got input of shape {tuple(shape)}: it takes ({batch}, {features})")

        of_indices = self._architecture.layers[0].takes_indices
        given = take_input("the network", self._device, self._dtype, x, check, of_indices)
        self._batch = len(given)
        draws = partial(draw, {"key": 0, "passes": 0})
        with self._device.naming_memory:
            y = self._architecture.forward(self._contexts, given[:, None], False, draws)
            for place in walk(self._architecture, self._contexts):
                if isinstance(place.ctx, RecurrentContext):
                    states = place.ctx.saved["states"]
                    given_states = states if isinstance(states, tuple) else (states,)
                    place.ctx.initial = tuple(map(self._device.xp.array, given_states))
            return self._device.xp.array(y[:, 0] if y.ndim == 3 else y)
