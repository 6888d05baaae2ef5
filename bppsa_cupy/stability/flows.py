"""The system that a caller passes, as a flow that pushes tangent vectors."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from bppsa_cupy.errors import ArgumentError
from bppsa_cupy.functional.tangents import CellFlow
from bppsa_cupy.network import Sequential
from bppsa_cupy.records.streaming import Flow, StepFlow


def flow_of(source: Any, h0: Any, batch: int | None = None) -> Flow:
    """The flow of a network, a recurrent module of PyTorch, or a step in NumPy, PyTorch or JAX.

    h0 is the first state. None means zeros for a network or module, with a batch axis of `batch`.
    """
    if isinstance(source, Sequential):
        names = source.layers[0].parameter_shapes()
        parameters = {name: source.device.to_host(source.parameters[f"0.{name}"]) for name in names}
        return _cell_flow(source.layers[0], parameters, h0, batch)
    if not callable(source):
        raise ArgumentError(
            f"a {type(source).__name__} is not a system: pass a function step(x_t, h), or a bp.Sequential "
            "that begins with a recurrent layer"
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        from bppsa_cupy.torch.analysis import is_recurrent, recurrent_counterpart

        if is_recurrent(source):
            known = recurrent_counterpart(source)
            parameters = {name: on_host(array) for name, array in known.parameters.items()}
            return _cell_flow(known.layer, parameters, h0, batch)
    if h0 is None:
        raise ArgumentError("a step function needs an initial state: pass h0")
    first = h0
    while isinstance(first, (tuple, list, dict)) and len(first):
        first = next(iter(first.values() if isinstance(first, dict) else first))
    library = type(first).__module__.partition(".")[0]
    if library == "torch":
        from bppsa_cupy.torch.tangents import TorchFlow

        return TorchFlow(source, h0)
    if library in ("jax", "jaxlib"):
        from bppsa_cupy.jax.tangents import JaxFlow

        return JaxFlow(source, h0)
    return StepFlow(source, h0)


def _cell_flow(layer: Any, parameters: Any, h0: Any, batch: int | None) -> CellFlow:
    if h0 is None:
        states = getattr(getattr(layer, "cell", None), "states", 1)
        size = states * getattr(layer, "num_layers", 1) * getattr(layer, "hidden_size", 1)
        h0 = np.zeros((size,) if batch is None else (batch, size))
    return CellFlow(layer, parameters, on_host(h0))


def on_host(array: Any) -> Any:
    """A tensor of PyTorch as a NumPy array; anything else as it is."""
    return array.detach().cpu().numpy() if hasattr(array, "detach") else array


def is_batch_first(source: Any) -> bool:
    """Whether a batch of sequences for this source is (B, T, F): for a network, and as its module says."""
    return isinstance(source, Sequential) or bool(getattr(source, "batch_first", False))
