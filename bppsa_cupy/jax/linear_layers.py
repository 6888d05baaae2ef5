"""Linear recurrent layers as pure functions: JAX's operations around `linear_scan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bppsa_cupy import layers
from bppsa_cupy.arguments import as_flag, as_instance
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.functional.checks import checked_parameters
from bppsa_cupy.functional.layout import taken_shape
from bppsa_cupy.jax import cell_functions
from bppsa_cupy.jax.layers import OverTime
from bppsa_cupy.jax.scan import linear_scan
from bppsa_cupy.layers import formulas

_LIBRARY = formulas.Library(
    module=jnp,
    scan=linear_scan,
    concatenate=jnp.concatenate,
    stack=jnp.stack,
    zeros=lambda array, shape: jnp.zeros(shape, array.dtype),
    steps=lambda array, count: jnp.arange(count),
    functions=cell_functions,
)


class LinearOverTime:
    """What functions of linear recurrences share: immutable, hashable, equal where their arguments are, which
    are those of the layer of this name in bppsa_cupy. Under jit, grad, vmap, jvp and checkpoint.

    layer  the engine's
    """

    __slots__ = ("__weakref__", "layer")
    engine: ClassVar[type[layers.LinearRecurrent]]
    layer: layers.LinearRecurrent

    def __init__(self, *arguments: Any, **options: Any) -> None:
        object.__setattr__(self, "layer", self.engine(*arguments, **options))

    def init(self, key: Any, dtype: Any = None) -> dict[str, jax.Array]:
        """Fresh parameters by the layer's names and from its distributions.

        key    of jax.random, not traced
        dtype  float32 or float64; by default JAX's for floats
        """
        seed = np.asarray(jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key)
        wanted = jnp.result_type(float) if dtype is None else dtype
        made = self.layer.initialize(np.random.default_rng(seed.ravel().tolist()))
        return {name: jnp.asarray(value, wanted) for name, value in made.items()}

    def __call__(
        self, params: Mapping[str, Any], x: Any, state: Any = None, *, lengths: Any = None
    ) -> tuple[jax.Array, jax.Array]:
        """Output, and the state after the last step.

        params   as `init` makes them; of one dtype, float32 or float64
        x        (B, T, F), or (T, B, F) where not batch_first, or (T, F) without a batch; of their dtype
        state    before the first step, (num_layers D, B, H), complex where the layer's is; without a batch
                 (num_layers D, H); zeros without it
        lengths  (B,) integers from 1 to T, where each sample ends; one integer without a batch. Later steps
                 leave the state as it is and put out 0

        Output is (B, T, D O), with outputs="last" (B, D O), in x's layout. Raises ShapeError naming both
        sides.
        """
        layer, x = self.layer, jnp.asarray(x)
        axis = 0 if layer.batch_first else 1
        if x.ndim == 2:
            first = None if state is None else jnp.expand_dims(state, 1)
            ends = None if lengths is None else jnp.asarray(lengths)[None]
            y, after = self(params, jnp.expand_dims(x, axis), first, lengths=ends)
            return y.squeeze(axis if layer.outputs == "all" else 0), after.squeeze(1)
        as_instance(type(self).__name__, "params", params, Mapping, "a dict as init(key) makes it")  # type: ignore[type-abstract]
        batch = taken_shape(layer, x.shape, None, None)[0]
        own = checked_parameters(layer, x.dtype, params, jnp.asarray)
        if state is not None:
            shape = layer.num_layers * layer.directions, batch, layer.hidden_size
            state, dtype = jnp.asarray(state), layer.state_dtype(np.dtype(x.dtype))
            if state.shape != shape or state.dtype != dtype:
                raise ShapeError(
                    f"{type(self).__name__} got a state of {state.dtype} and shape {state.shape}: it takes "
                    f"{dtype} of shape {shape}"
                )
        ends = None if lengths is None else jnp.asarray(lengths)
        y, after = formulas.forward(
            layer,
            _LIBRARY,
            formulas.cell_on(layer, _LIBRARY),
            own,
            x.swapaxes(0, 1) if axis else x,
            ends,
            state,
        )
        return y.swapaxes(0, 1) if axis and y.ndim == 3 else y, after

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: make another, with {name} changed")

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self.layer)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other.layer) == repr(self.layer)

    def __hash__(self) -> int:
        return hash((type(self), repr(self.layer)))

    def __repr__(self) -> str:
        return repr(self.layer)


def _made(kind: type[LinearOverTime], layer: layers.LinearRecurrent) -> LinearOverTime:
    """A function of a layer's, as copies and pickles make it."""
    function = kind.__new__(kind)
    object.__setattr__(function, "layer", layer)
    return function


class LinearCellLayer(LinearOverTime):
    """A layer whose unit does what a linear `bp.Cell` says: see `bp.LinearCellLayer`, the cell first."""

    __slots__ = ()
    engine = layers.LinearCellLayer


class MinGRU(LinearOverTime):
    """minGRU: see `bp.MinGRU`."""

    __slots__ = ()
    engine = layers.MinGRU


class MinLSTM(LinearOverTime):
    """minLSTM: see `bp.MinLSTM`."""

    __slots__ = ()
    engine = layers.MinLSTM


class SRU(LinearOverTime):
    """A simple recurrent unit: see `bp.SRU`. With v1=False this gives a `PeepholeSRU`."""

    __slots__ = ()
    engine = layers.SRU

    def __new__(cls, *arguments: Any, v1: bool = True, **options: Any) -> Any:
        if not as_flag("SRU", "v1", v1):
            return PeepholeSRU(*arguments, **options)
        return super().__new__(cls)


class PeepholeSRU(OverTime):
    """A simple recurrent unit whose gates see the former state: see `bp.PeepholeSRU`. Derivatives are first
    ones, in reverse mode."""

    __slots__ = ()
    engine = layers.PeepholeSRU


class QRNN(LinearOverTime):
    """A quasi-recurrent layer: see `bp.QRNN`."""

    __slots__ = ()
    engine = layers.QRNN


class RGLRU(LinearOverTime):
    """The real-gated linear recurrent unit: see `bp.RGLRU`."""

    __slots__ = ()
    engine = layers.RGLRU


class LRU(LinearOverTime):
    """The linear recurrent unit: see `bp.LRU`."""

    __slots__ = ()
    engine = layers.LRU


class DiagonalSSM(LinearOverTime):
    """S5's diagonal state space: see `bp.DiagonalSSM`."""

    __slots__ = ()
    engine = layers.DiagonalSSM
