"""`lyapunov_exponents`: of records and arrays of Jacobians, and along the trajectory of a system."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.layers import Layer, MatrixRecurrent
from bppsa_cupy.network import Sequential
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.spectra import chain_exponents, checked_count
from bppsa_cupy.records.streaming import Flow, HostFlow, StepFlow, stream
from bppsa_cupy.system.compiled import compiled
from bppsa_cupy.timescan import suffix

#: Bytes of a matrix that a core's cache holds: a larger one passes twice for two products.
CACHE = 1 << 19


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
    inputs, batch = x, None
    if hasattr(x, "__len__") and hasattr(x, "__getitem__"):
        if type(x).__module__.partition(".")[0] in ("jax", "jaxlib") or isinstance(x, list):
            x = np.asarray(x)
        if isinstance(source, Sequential) or hasattr(source, "hidden_size"):
            x = np.asarray(on_host(x))
            if x.ndim == 3:
                is_batch_first = isinstance(source, Sequential) or getattr(source, "batch_first", False)
                x = x.swapaxes(0, 1) if is_batch_first else x
                batch = x.shape[1]
        inputs = (x[step] for step in range(len(x)))
        steps = len(x) if steps is None else min(steps, len(x))
    elif x is None and steps is None:
        raise ArgumentError(f"{owner} got neither x nor steps: pass steps if the system has no inputs")
    flow = flow_of(source, h0, batch)
    return stream(
        flow, inputs, steps, count=checked_count(owner, count, flow.size), burn_in=burn_in, every=every,
        basis=basis, progress=as_flag(owner, "progress", progress),
    )  # fmt: skip


def flow_of(source: Any, h0: Any, batch: int | None = None) -> Flow:
    """The flow of a network, a recurrent module of PyTorch, or a step in NumPy, PyTorch or JAX.

    h0 is the first state. None means zeros for a network or module, with a batch axis of `batch`.
    """
    layer: Any = None
    if isinstance(source, Sequential):
        layer, to_host = source.layers[0], source.device.to_host
        parameters = {name: to_host(source.parameters[f"0.{name}"]) for name in layer.parameter_shapes()}
    elif not callable(source):
        raise ArgumentError(
            f"a {type(source).__name__} is not a system: pass a function step(x_t, h), or a bp.Sequential "
            "that begins with a recurrent layer"
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        from bppsa_cupy.torch.analysis import is_recurrent, recurrent_counterpart

        if is_recurrent(source):
            known = recurrent_counterpart(source)
            layer = known.layer
            parameters = {name: on_host(array) for name, array in known.parameters.items()}
    if layer is not None:
        if h0 is None:
            states = getattr(getattr(layer, "cell", None), "states", 1)
            size = states * getattr(layer, "num_layers", 1) * getattr(layer, "hidden_size", 1)
            h0 = np.zeros((size,) if batch is None else (batch, size))
        return CellFlow(layer, parameters, on_host(h0))
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


def on_host(array: Any) -> Any:
    """A tensor of PyTorch as a NumPy array; anything else as it is."""
    return array.detach().cpu().numpy() if hasattr(array, "detach") else array


class CellFlow(HostFlow):
    """A recurrent layer of one direction, in float64 on the host.

    A state (S,) or (B, S) has the states of the inner layers one after the other, each h first, then c.
    """

    def __init__(self, layer: Layer, parameters: Mapping[str, Any], h0: Any) -> None:
        if not isinstance(layer, MatrixRecurrent) or layer.bidirectional or not layer.projects:
            raise ArgumentError(
                f"{layer!r} cannot propagate tangent vectors: pass a unidirectional RNN, GRU, LSTM or "
                "CellLayer, or the records of net.transposed_jacobians()"
            )
        self.layer, self.form, self.hidden = layer, layer.cell, layer.hidden_size
        super().__init__(h0, layer.num_layers * self.form.states * self.hidden)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self._inner: list[tuple[Any, ...]] = []
        for number in range(layer.num_layers):
            end = suffix(number, 0)
            weight, recurrent, bias, recurrent_bias = (
                np.array(parameters[name + end], np.float64) if name + end in parameters else None
                for name in names
            )
            if bias is None:
                bias = np.zeros(self.form.gates * self.hidden)
            unit = tuple(np.array(parameters[name + end], np.float64) for name in layer.unit_parameters)
            self._inner.append((weight, recurrent, bias[None], recurrent_bias, unit))
        states = range(self.form.states)
        self._seeds = [tuple(np.full((1, 1), float(place == row)) for place in states) for row in states]

    def push(self, x: Any) -> None:
        self.state, self.tangent = self._evaluate(x, self.state, self.tangent)

    def linearize(self, x: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.batch = len(points)
        eye = np.broadcast_to(np.eye(self.size), (self.batch, self.size, self.size))
        after, rows = self._evaluate(x, points, eye)
        return after, rows.swapaxes(1, 2)

    def _evaluate(self, x: Any, state: np.ndarray, tangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The next state and tangent vectors, of the same shapes; x is (F,) or (B, F), None for zeros."""
        form, H = self.form, self.hidden
        batch, count = state.size // self.size, tangent.shape[-2]
        states = state.reshape(batch, -1, form.states, H)
        tangents = tangent.reshape(batch, count, -1, form.states, H)
        after, moved = np.empty_like(states), np.empty_like(tangents)
        below = None if x is None else self._input(x, batch)
        entering: tuple[np.ndarray, ...] = ()
        for number, (weight, recurrent, bias, recurrent_bias, unit) in enumerate(self._inner):
            projected = bias if below is None else below @ weight.T + bias
            if number:
                entering = _parts(moved[:, :, number - 1, 0] @ weight.T, H)
            through, rows = _times(recurrent, states[:, number, 0], tangents[:, :, number, 0])
            if recurrent_bias is not None:
                through = through + recurrent_bias
            moving, before = _parts(rows, H), tuple(states[:, number].swapaxes(0, 1))
            new, saved = form.functions.forward(_parts(projected, H), _parts(through, H), before, unit)
            for row in range(form.states):
                after[:, number, row] = new[row]
                by_x, by_u, by_before, _ = form.functions.backward(self._seeds[row], saved, new, before, unit)
                terms: list[tuple[np.ndarray, np.ndarray]] = []
                if (0, row) in form.dense:
                    by_sums = dict(zip(form.separate, by_u, strict=True))
                    gates = (by_sums.get(gate, by_x[gate]) for gate in form.recurrent_gates)
                    terms += zip(gates, moving, strict=True)
                for former in range(form.states):
                    if (former, row) in form.diagonal:
                        terms.append((by_before[former], tangents[:, :, number, former]))
                if entering:
                    terms += zip(by_x, entering, strict=True)
                _sum(terms, moved[:, :, number, row])
            below = after[:, number, 0]
        return after.reshape(state.shape), moved.reshape(tangent.shape)

    def _input(self, x: Any, batch: int) -> np.ndarray:
        values, features = np.asarray(x, np.float64), self.layer.input_size
        if values.shape != (*self.shape, features):
            raise ShapeError(
                f"the input of a step has shape {values.shape}: pass {(*self.shape, features)} for each step"
            )
        return values.reshape(batch, features)


def _parts(array: np.ndarray, width: int) -> tuple[np.ndarray, ...]:
    """The parts of the last axis, each of this width."""
    size = array.shape[-1]
    return (array,) if size == width else tuple(array[..., i : i + width] for i in range(0, size, width))


def _times(weight: np.ndarray, states: np.ndarray, tangents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The products of a matrix with states (B, H) and tangent vectors (B, count, H)."""
    batch, count, size = tangents.shape
    if batch * count == 1 and weight.nbytes > CACHE:
        products = np.empty((2, len(weight)))
        _multiply_two(weight, states[0], tangents[0, 0], products)
        return products[:1], products[1:, None]
    rows = np.ascontiguousarray(tangents).reshape(-1, size) @ weight.T
    return states @ weight.T, rows.reshape(batch, count, -1)


@compiled(fastmath={"reassoc"})
def _multiply_two(matrix: Any, first: Any, second: Any, out: Any) -> None:
    """The products of a matrix with two vectors, in a single pass over the matrix."""
    for i in range(len(matrix)):
        a, b = 0.0, 0.0
        for j in range(len(first)):
            a += matrix[i, j] * first[j]
            b += matrix[i, j] * second[j]
        out[0, i], out[1, i] = a, b


def _sum(terms: list[tuple[np.ndarray, np.ndarray]], out: np.ndarray) -> None:
    """Write the sum of factor · vectors: a factor (B, H) per unit for vectors (B, count, H)."""
    if len(terms) > 1:
        terms = [term for term in terms if term[0].any()]
    if not terms:
        out[...] = 0
    for place, (factor, vectors) in enumerate(terms):
        if place:
            out += factor[:, None] * vectors
        else:
            np.multiply(factor[:, None], vectors, out=out)
