"""`lyapunov_exponents`: of records and arrays of Jacobians, and along the trajectory of a system."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer
from bppsa_cupy.errors import ArgumentError
from bppsa_cupy.functional.tangents import CellFlow
from bppsa_cupy.network import Sequential
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.spectra import chain_exponents, checked_count
from bppsa_cupy.records.streaming import Flow, StepFlow, stream


def lyapunov_exponents(
    source: Any,
    x: Any = None,
    h0: Any = None,
    *,
    count: int | None = None,
    steps: int | None = None,
    burn_in: int = 0,
    every: int = 1,
    basis: Any = None,
    progress: bool = False,
) -> Any:
    """Compute Lyapunov exponents of a dynamical system, or of stored Jacobians.

    On average, a small change of the state grows by a factor of exp(exponent) per step. In the backward pass,
    a gradient grows by the same factor per step.

    Parameters
    ----------
    source : network, callable or records
        The system, in one of these forms:

        - a `bp.Sequential` whose first layer is a unidirectional RNN, GRU, LSTM or CellLayer, or a PyTorch
          module of one of these kinds;
        - a step function in PyTorch or JAX: ``h_next = step(x_t, h)``;
        - a step function in NumPy: ``h_next, J = step(x_t, h)``. J is the Jacobian ∂h_next/∂h as an array, a
          SciPy matrix, or a function that maps tangent vectors Q (S, k) to J Q;
        - stored Jacobians: the records of one inner layer and direction, or arrays (see Notes).
    x : array, iterator or None
        The inputs. For a network, (B, T, F) or (T, F). For a step function, (T, ...) or (T, B, ...), or an
        iterator that yields the input of one step at a time. None means no inputs: a step function is called
        as ``step(h)``, and a network gets zeros.
    h0 : array or nested arrays, (S,) or (B, S)
        The initial state, in the array type of the step function. For a network the default is 0, and the S
        elements are the states of all inner layers in order. For an LSTM h comes before c.
    count : int, default: S
        The number k of exponents to compute, largest first. A smaller k makes each step cheaper.
    steps : int, optional
        The number of steps, burn-in included. By default all inputs are used. Required if x is None.
    burn_in : int, default: 0
        Number of first steps that the averages leave out, because state and vectors have not converged.
    every : int, default: 1
        Number of steps between two QR decompositions.
    basis : array, (S, k) or (B, S, k), optional
        The initial tangent vectors, for example the `basis` of an earlier result. By default they are random
        with a fixed seed.
    progress : bool, default: False
        Whether to show a progress bar.

    Returns
    -------
    LyapunovSpectrum or ndarray
        For a system, a LyapunovSpectrum with the exponents, their history and standard errors, and the final
        state and basis. For stored Jacobians, an array (B, k) of exponents.

    Raises
    ------
    ShapeError
        If an argument has the wrong shape.
    ArgumentError
        If an argument does not apply to this source, or the source is none of these forms.
    NonFiniteError
        If the trajectory or a Jacobian is not finite.

    Notes
    -----
    Each step multiplies orthonormal tangent vectors by its Jacobian. Every `every` steps, a QR decomposition
    makes them orthonormal again. An exponent is the average of log |r_ii| per step (Benettin et al. 1980).
    For a system no Jacobian is stored, so the memory does not depend on T. Networks and NumPy steps run in
    float64, other steps in the dtype of h0.

    The average has an error of O(1 / T). All S exponents sum to the average of log |det J_t|.

    Stored Jacobians may be records, arrays (T, S, S) or (T, B, S, S), or lists of SciPy matrices. Arrays and
    matrices contain J_t, whose rows are the state after step t and whose columns are the state before it.
    Records contain the transpose.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> W = 1.5 * np.random.default_rng(0).standard_normal((100, 100)) / 10
    >>> def step(h):
    ...     h = np.tanh(W @ h)
    ...     return h, lambda q: (1 - h**2)[:, None] * (W @ q)
    >>> run = bp.lyapunov_exponents(step, h0=np.ones(100), count=3, steps=500, burn_in=200)
    >>> run.exponents.shape, run.history.shape
    ((3,), (300, 3))
    """
    owner = "lyapunov_exponents"
    burn_in, every = as_integer(owner, "burn_in", burn_in, 0), as_integer(owner, "every", every, 1)
    if isinstance(source, (Sequence, np.ndarray, JacobianRecord)):
        if any(value is not None for value in (x, h0, steps, basis)) or every > 1:
            raise ArgumentError(
                f"{owner} got stored Jacobians together with x, h0, steps, basis or every: omit these "
                "arguments"
            )
        return chain_exponents(source, count, burn_in)
    steps = None if steps is None else as_integer(owner, "steps", steps, 1)
    inputs, available, batch = _inputs(source, x)
    if available is not None:
        steps = available if steps is None else min(steps, available)
    elif x is None and steps is None:
        raise ArgumentError(f"{owner} got neither x nor steps: pass steps if the system has no inputs")
    flow = flow_of(source, h0, batch)
    return stream(
        flow, inputs, steps, count=checked_count(owner, count, flow.size), burn_in=burn_in, every=every,
        basis=basis, progress=as_flag(owner, "progress", progress),
    )  # fmt: skip


def _inputs(source: Any, x: Any) -> tuple[Iterable[Any] | None, int | None, int | None]:
    """The inputs step by step, and how many steps and samples they have, None where that is unknown."""
    if x is None or not (hasattr(x, "__len__") and hasattr(x, "__getitem__")):
        return x, None, None
    if type(x).__module__.partition(".")[0] in ("jax", "jaxlib") or isinstance(x, list):
        x = np.asarray(x)
    batch = None
    if isinstance(source, Sequential) or hasattr(source, "hidden_size"):
        x = np.asarray(on_host(x))
        if x.ndim == 3:
            x = x.swapaxes(0, 1) if is_batch_first(source) else x
            batch = x.shape[1]
    return (x[step] for step in range(len(x))), len(x), batch


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
