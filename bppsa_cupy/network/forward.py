"""The forward pass: a batch through layers, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.conversion import of_dtype, of_list
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.sequences import set_sequences


def begin(current: Pass, x: Any, lengths: Any, states: Any, keep: bool) -> Array:
    """Take a batch into a pass; it is on the device then. Arguments and errors are those of
    `Sequential.forward`."""
    architecture = current.architecture
    of_indices = bool(architecture.layers) and architecture.layers[0].takes_indices
    given = take_input("the network", current.device, current.dtype, x, architecture.check_input, of_indices)
    current.parameters.apply_masks()
    current.output, current.keeps = None, keep  # no output until the pass has come to its end
    for ctx in current.layers:
        ctx.keeps = keep
    current.input, current.version = given, current.parameters.version
    current.forget_gradients()
    set_sequences(current, lengths, states)
    return given


def take_input(
    owner: str,
    device: Device,
    dtype: np.dtype,
    x: Any,
    check: Callable[[tuple[int, ...]], object],
    of_indices: bool = False,
) -> Array:
    """A batch on the device, of the network's dtype. A list, and an array of another dtype, are converted
    where nothing is lost, the latter with a warning the first time.

    check  raises ShapeError unless a batch may have a shape
    of_indices  whether integers are expected, and are taken without a word

    Raises ShapeError where a value would change.
    """
    given = device.asarray(of_list(x, dtype))
    check(given.shape)
    if given.dtype == dtype:
        return given
    if of_indices and given.dtype.kind in "iu":
        return given.astype(dtype)
    return of_dtype(owner, "input", given, dtype, f"convert the input, as x.astype({dtype.name!r})")


def through(current: Pass, x: Array, layers: range, training: bool, random_state: Mapping[str, int]) -> Array:
    """The output of `layers`, one after another, for `x`, the input of the first; fills their contexts."""
    architecture = current.architecture
    return architecture.forward(current.layers, x, training, partial(draw, random_state), layers)


def draw(random_state: Mapping[str, int], index: int) -> tuple[int, int, int]:
    """What the random numbers of layer `index` follow from: `Context.draw`."""
    return random_state["key"], index, random_state["passes"]
