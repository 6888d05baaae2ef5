"""The forward pass: a batch through layers, in order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.sequences import set_sequences


def begin(current: Pass, x: Any, lengths: Any, states: Any) -> Array:
    """Take a batch into a pass; it is on the device then. Raises what `Sequential.forward` raises."""
    given, architecture = current.device.asarray(x), current.architecture
    architecture.check_input(given.shape)
    if given.dtype != current.dtype:
        raise ShapeError(
            f"the network is {current.dtype} and got input of {given.dtype}: convert the input, as "
            f"x.astype({current.dtype.name!r})"
        )
    current.parameters.apply_masks()
    current.input, current.version = given, current.parameters.version
    current.values = current.parameters.watched_values()
    current.forget_gradients()
    set_sequences(current, lengths, states)
    return given


def through(current: Pass, x: Array, layers: range, training: bool, random_state: Mapping[str, int]) -> Array:
    """The output of `layers`, one after another, for `x`, the input of the first; fills their contexts."""
    architecture = current.architecture
    return architecture.forward(current.layers, x, training, partial(draw, random_state), layers)


def draw(random_state: Mapping[str, int], index: int) -> tuple[int, int, int]:
    """What the random numbers of layer `index` follow from: `Context.draw`."""
    return random_state["key"], index, random_state["passes"]
