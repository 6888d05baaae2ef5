"""A pass of the engine on memory that JAX hands over: what `buffer_callback` calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.functional import Gradients, Saved
from bppsa_cupy.functional.passes import begin, keep, resume, run_forward
from bppsa_cupy.functional.passes import go_back as back_through
from bppsa_cupy.jax.parts import Back, Derivatives, Inputs, Results, Wanted
from bppsa_cupy.layers import MatrixRecurrent

#: DLPack's number of the host's memory.
HOST = 1
#: In place of the addresses of parameters: those of a context's own arrays.
OWN = "own"


def go_forward(layer: MatrixRecurrent, wanted: Wanted, execution: Any, out: Results, inputs: Inputs) -> None:
    """Fill `out`. Arguments after `wanted` are the callback's: trees of `Buffer`s."""
    device, on_stream = where(execution, inputs.x)
    with on_stream:
        arrays: Inputs = as_arrays(device, inputs)
        results: Results = as_arrays(device, out)
        saved = begun(layer, device, arrays, wanted.saved)
        run_forward(saved, arrays.x, arrays.bounds, arrays.states or None, results.y, results.states)
        if results.saved is not None:
            keep(saved, results.saved)


def go_back(layer: MatrixRecurrent, wanted: Wanted, execution: Any, out: Derivatives, back: Back) -> None:
    """Likewise."""
    device, on_stream = where(execution, back.by_output)
    with on_stream:
        arrays: Back = as_arrays(device, back)
        gradients: Derivatives = as_arrays(device, out)
        inputs = arrays.inputs
        saved = begun(layer, device, inputs, True)
        resume(saved, inputs.x, inputs.bounds, inputs.states or None, arrays.saved)
        into = Gradients(gradients.parameters or {}, gradients.x, gradients.states or None)
        back_through(
            saved, arrays.by_output, arrays.by_states or None, wanted.parameters, wanted.x, True, out=into
        )


def begun(layer: MatrixRecurrent, device: Device, inputs: Inputs, keep: bool) -> Saved:
    """A pass of the layer on copies of the parameters: its launches are bound to arrays, and those of JAX's
    are others in every pass.

    Parameters
    ----------
    keep : bool
        Whether a way back may follow.
    """
    dtype = inputs.x.dtype

    def arrays() -> tuple[dict[str, Array], dict[str, Array]]:
        return {name: device.empty(a.shape, dtype) for name, a in inputs.parameters.items()}, {}

    saved = begin(layer, device, inputs.x, OWN, arrays, inputs.bounds, inputs.states or None, keep)
    for name, array in saved.context.parameters.items():
        array[...] = inputs.parameters[name]
    return saved


def where(execution: Any, buffer: Any) -> tuple[Device, AbstractContextManager[Any]]:
    """The engine's device of a buffer, and the stream that JAX works on there."""
    kind, number = buffer.__dlpack_device__()
    device = get_device("host" if kind == HOST else "cuda")
    return device, device.on_stream(number, 0 if kind == HOST else execution.stream)


def as_arrays(device: Device, buffers: Any) -> Any:
    """A tree of buffers as arrays on their memory."""
    convert: Callable[[Any], Array] = np.asarray if device.xp is np else device.asarray
    return jax.tree.map(convert, buffers)
