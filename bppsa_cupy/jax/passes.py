"""A pass of the engine on memory that JAX hands over: what `buffer_callback` calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.functional import Gradients, Saved
from bppsa_cupy.functional.passes import begin, keep, resume, run
from bppsa_cupy.functional.passes import go_back as back_through
from bppsa_cupy.jax.parts import Back, Found, Given, Results, Wanted
from bppsa_cupy.layers import MatrixRecurrent

#: DLPack's number of the host's memory.
HOST = 1
#: In place of the addresses of parameters: those of a context's own arrays.
OWN = "own"


def go_forward(layer: MatrixRecurrent, wanted: Wanted, execution: Any, out: Results, given: Given) -> None:
    """Fill `out`. Arguments after `wanted` are the callback's: trees of `Buffer`s."""
    device, on_stream = where(execution, given.x)
    with on_stream:
        arrays: Given = as_arrays(device, given)
        results: Results = as_arrays(device, out)
        saved = begun(layer, device, arrays, wanted.kept)
        run(saved, arrays.x, arrays.bounds, arrays.states or None, results.y, results.states)
        if results.kept is not None:
            keep(saved, results.kept)


def go_back(layer: MatrixRecurrent, wanted: Wanted, execution: Any, out: Found, back: Back) -> None:
    """Likewise."""
    device, on_stream = where(execution, back.by_output)
    with on_stream:
        arrays: Back = as_arrays(device, back)
        found: Found = as_arrays(device, out)
        given = arrays.given
        saved = begun(layer, device, given, True)
        resume(saved, given.x, given.bounds, given.states or None, arrays.kept)
        into = Gradients(found.parameters or {}, found.x, found.states or None)
        back_through(
            saved, arrays.by_output, arrays.by_states or None, wanted.parameters, wanted.x, True, out=into
        )


def begun(layer: MatrixRecurrent, device: Device, given: Given, keep: bool) -> Saved:
    """A pass of the layer on copies of the parameters: its launches are bound to arrays, and those of JAX's
    are others in every pass.

    keep  whether a way back may follow
    """
    dtype = given.x.dtype

    def arrays() -> tuple[dict[str, Array], dict[str, Array]]:
        return {name: device.empty(a.shape, dtype) for name, a in given.parameters.items()}, {}

    saved = begin(layer, device, given.x, OWN, arrays, given.bounds, given.states or None, keep)
    for name, array in saved.context.parameters.items():
        array[...] = given.parameters[name]
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
