"""Recurrent layers as pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp

from bppsa_cupy import layers
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.functional.passes import checked_parameters, marks_of, taken_shape
from bppsa_cupy.jax.passes import Inputs, Wanted, as_lengths, forward, sequence_axis
from bppsa_cupy.layers import MatrixRecurrent

#: The engine's layers that are in use, by their text: functions of equal arguments share one, and so what JAX
#: has compiled for it, and the memory of passes.
_layers: WeakValueDictionary[str, MatrixRecurrent] = WeakValueDictionary()


class OverTime:
    """Base class of the pure functions. Functions with equal arguments are equal and have equal hashes.

    Parameters
    ----------
    *arguments, **options
        Arguments of the layer of this name in bppsa_cupy. batch_first is True by default.

    Examples
    --------
    >>> import bppsa_cupy.jax as bj
    >>> bj.GRU(3, 4) == bj.GRU(3, 4)
    True
    """

    engine: ClassVar[type[MatrixRecurrent]]
    layer: MatrixRecurrent

    def __init_subclass__(cls, engine: type[MatrixRecurrent] | None = None) -> None:
        if engine is not None:
            cls.engine = engine

    def __init__(self, *arguments: Any, **options: Any) -> None:
        layer = self.engine(*arguments, **options)
        self.layer = _layers.setdefault(repr(layer), layer)

    def init(self, key: Any, dtype: Any = None) -> dict[str, jax.Array]:
        """Draw fresh parameters, with the names, shapes and distribution of PyTorch: uniform in ±1/sqrt(H).

        Parameters
        ----------
        key : jax.random key
            jax.vmap over keys makes the parameters of many functions.
        dtype : float32 or float64, optional
            The default is the default float type of JAX.

        Returns
        -------
        dict of str to jax.Array
            The parameters by name, for example "weight_ih_l0".
        """
        shapes = self.layer.parameter_shapes()
        wanted = jnp.result_type(float) if dtype is None else dtype
        bound = 1 / math.sqrt(self.layer.hidden_size)
        return {
            name: jax.random.uniform(subkey, shape, wanted, -bound, bound)
            for subkey, (name, shape) in zip(jax.random.split(key, len(shapes)), shapes.items(), strict=True)
        }

    def __call__(
        self, params: Mapping[str, Any], x: Any, state: Any = None, *, lengths: Any = None, resets: Any = None
    ) -> tuple[jax.Array, Any]:
        """Compute outputs and last states of sequences.

        Parameters
        ----------
        params : dict of str to array
            The parameters that `init` returns, float32 or float64.
        x : array
            (B, T, F), (T, B, F) with batch_first=False, or (T, F) without a batch, in the dtype of params.
        state : array or tuple of arrays, optional
            The states before the first step, (num_layers D, B, H), or (num_layers D, H) without a batch. An
            LSTM uses (h, c). Zeros by default.
        lengths : int array, (B,), optional
            The length of each sequence, from 1 to T. Later steps keep the state and output 0.
        resets : bool array, optional
            (B, T), (T, B) with batch_first=False, or (T,). The state before a marked step is zero, as at the
            beginning of an episode. Not together with lengths.

        Returns
        -------
        output : jax.Array
            (B, T, D H), or (B, D H) with outputs="last", in the layout of x.
        state : jax.Array or tuple
            The states after the last step.

        Raises
        ------
        ShapeError
            If an array has the wrong shape or dtype. Traced lengths are checked when the pass runs; JAX then
            raises its own error with this message.
        """
        layer, x = self.layer, jnp.asarray(x)
        check_sequence(layer, x)
        axis, has_batch = sequence_axis(layer), x.ndim == 3
        if not has_batch:
            x = jnp.expand_dims(x, axis)
            state = jax.tree.map(lambda part: jnp.expand_dims(part, 1), state)
            if lengths is not None:
                lengths = lengths[None] if hasattr(lengths, "ndim") else [lengths]
            if resets is not None:
                resets = jnp.expand_dims(resets, axis)
        taken_shape(layer, x.shape)
        values = checked_parameters(layer, x.dtype, params, jnp.asarray)
        batch, steps = x.shape[axis], x.shape[1 - axis]
        states = () if state is None else layer.check_states(state, batch, x.dtype, jnp.asarray, "the state")
        bounds = None if lengths is None else as_lengths(lengths, batch, steps)
        if resets is not None:
            bounds = marks_of(layer, jnp.asarray, x.shape[:2], lengths, resets)
        y, states, _ = forward(layer, Inputs(x, bounds, states, values), Wanted())
        after = states[0] if len(states) == 1 else states
        if not has_batch:
            y = y.squeeze(axis if layer.outputs == "all" else 0)
            after = jax.tree.map(lambda part: part.squeeze(1), after)
        return y, after

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self.layer)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.layer is self.layer

    def __hash__(self) -> int:
        return hash((type(self), self.layer))

    def __repr__(self) -> str:
        return repr(self.layer)


def _made(kind: type[OverTime], layer: MatrixRecurrent) -> OverTime:
    """A function of a layer's, as copies and pickles make it."""
    function = kind.__new__(kind)
    function.layer = _layers.setdefault(repr(layer), layer)
    return function


class RNN(OverTime, engine=layers.RNN):
    """Elman RNN as a pure function ``y, h = rnn(params, x)``.

    The constructor has the arguments of `bp.RNN`.

    Examples
    --------
    >>> import jax, bppsa_cupy.jax as bj
    >>> rnn = bj.RNN(3, 4)
    >>> y, h = rnn(rnn.init(jax.random.key(0)), jax.numpy.ones((2, 7, 3)))
    >>> y.shape, h.shape
    ((2, 7, 4), (1, 2, 4))
    """


class GRU(OverTime, engine=layers.GRU):
    """GRU as a pure function ``y, h = gru(params, x)``.

    The constructor has the arguments of `bp.GRU`.

    Examples
    --------
    >>> import jax, bppsa_cupy.jax as bj
    >>> gru = bj.GRU(3, 4)
    >>> y, h = gru(gru.init(jax.random.key(0)), jax.numpy.ones((2, 7, 3)))
    >>> y.shape, h.shape
    ((2, 7, 4), (1, 2, 4))
    """


class LSTM(OverTime, engine=layers.LSTM):
    """LSTM as a pure function ``y, (h, c) = lstm(params, x)``.

    The constructor has the arguments of `bp.LSTM`.

    Examples
    --------
    >>> import jax, bppsa_cupy.jax as bj
    >>> lstm = bj.LSTM(3, 4)
    >>> y, (h, c) = lstm(lstm.init(jax.random.key(0)), jax.numpy.ones((2, 7, 3)))
    >>> y.shape, c.shape
    ((2, 7, 4), (1, 2, 4))
    """


class CellLayer(OverTime, engine=layers.CellLayer):
    """Layer of a `bp.Cell` as a pure function ``y, state = layer(params, x)``.

    The constructor has the arguments of `bp.CellLayer`.

    Raises
    ------
    ArgumentError
        If the cell is linear. Use `linear_scan` instead.

    Examples
    --------
    >>> import jax, bppsa_cupy as bp, bppsa_cupy.jax as bj
    >>> layer = bj.CellLayer(bp.Cell.built_in("gru"), 3, 4)
    >>> layer(layer.init(jax.random.key(0)), jax.numpy.ones((2, 7, 3)))[0].shape
    (2, 7, 4)
    """

    def __init__(self, cell: Any, *arguments: Any, **options: Any) -> None:
        if getattr(cell, "is_linear", False):
            raise ArgumentError(f"CellLayer got {cell!r}, which is linear: use bppsa_cupy.jax.linear_scan")
        super().__init__(cell, *arguments, **options)


def check_sequence(layer: MatrixRecurrent, x: jax.Array) -> None:
    """Raise ShapeError unless x is (B, T, F), (T, B, F) or (T, F), of a dtype that is taken."""
    if not all(isinstance(size, int) for size in x.shape):
        raise ShapeError(
            f"{layer!r} got x with the symbolic shape {x.shape}: export a separate function for each "
            "concrete shape"
        )
    if x.ndim not in (2, 3):
        axes = "(B, T" if layer.batch_first else "(T, B"
        raise ShapeError(
            f"{layer!r} got x of shape {x.shape}: pass {axes}, {layer.input_size}), or (T, "
            f"{layer.input_size}) without a batch; use jax.vmap for further axes"
        )
