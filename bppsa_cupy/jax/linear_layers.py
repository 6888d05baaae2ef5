"""Linear recurrent layers as pure functions: JAX's operations around `linear_scan`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bppsa_cupy import layers
from bppsa_cupy.jax.layers import OverTime
from bppsa_cupy.jax.parts import Given
from bppsa_cupy.jax.scan import linear_scan
from bppsa_cupy.layers.linear_recurrent import Library


@jax.custom_jvp
def bounded_root(x: jax.Array) -> jax.Array:
    """The square root of x, whose derivative is 1000 where it were more."""
    return jnp.sqrt(x)


@bounded_root.defjvp
def _bounded_slope(primals: Any, tangents: Any) -> Any:
    return bounded_root(primals[0]), tangents[0] / jnp.sqrt(jnp.maximum(4 * primals[0], 1e-6))


#: The functions of cells, by the names that the texts of twins have them by.
_FUNCTIONS = SimpleNamespace(
    sigmoid=jax.nn.sigmoid,
    tanh=jnp.tanh,
    sqrt=jnp.sqrt,
    exponential=jnp.exp,
    expm1=jnp.expm1,
    logarithm=jnp.log,
    sine=jnp.sin,
    cosine=jnp.cos,
    magnitude=jnp.abs,
    select=jnp.where,
    bounded_root=bounded_root,
    number=lambda like, value: value,
    multiply_add=lambda x, y, z: x * y + z,
)
_LIBRARY = Library(
    module=jnp,
    scan=linear_scan,
    concatenate=jnp.concatenate,
    stack=jnp.stack,
    zeros=lambda array, shape: jnp.zeros(shape, array.dtype),
    steps=lambda array, count: jnp.arange(count),
    functions=_FUNCTIONS,
)


class LinearOverTime(OverTime):
    """What functions of linear recurrences share. Under jit, grad, vmap, jvp and checkpoint."""

    engine: ClassVar[type[layers.LinearRecurrent]]
    layer: layers.LinearRecurrent

    def init(self, key: Any, dtype: Any = None) -> dict[str, jax.Array]:
        """Fresh parameters by the layer's names and from its distributions.

        key    of jax.random, not traced
        dtype  float32 or float64; by default JAX's for floats
        """
        seed = np.asarray(jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key)
        wanted = jnp.result_type(float) if dtype is None else dtype
        made = self.layer.initialize(np.random.default_rng(seed.ravel().tolist()))
        return {name: jnp.asarray(value, wanted) for name, value in made.items()}

    def _over(self, given: Given) -> tuple[jax.Array, Any]:
        layer, by_time = self.layer, not self.layer.batch_first
        y, after = layer.forward_in(
            _LIBRARY,
            layer.cell_in(_LIBRARY),
            given.parameters,
            given.x.swapaxes(0, 1) if by_time else given.x,
            given.lengths,
            given.states[0] if given.states else None,
        )
        return y.swapaxes(0, 1) if by_time and y.ndim == 3 else y, after


class LinearCellLayer(LinearOverTime):
    """A layer whose unit does what a linear `bp.Cell` says: see `bp.LinearCellLayer`, the cell first."""

    engine = layers.LinearCellLayer


class MinGRU(LinearOverTime):
    """minGRU: see `bp.MinGRU`."""

    engine = layers.MinGRU


class MinLSTM(LinearOverTime):
    """minLSTM: see `bp.MinLSTM`."""

    engine = layers.MinLSTM


class SRU(LinearOverTime):
    """A simple recurrent unit: see `bp.SRU`."""

    engine = layers.SRU


class QRNN(LinearOverTime):
    """A quasi-recurrent layer: see `bp.QRNN`."""

    engine = layers.QRNN


class RGLRU(LinearOverTime):
    """The real-gated linear recurrent unit: see `bp.RGLRU`."""

    engine = layers.RGLRU


class LRU(LinearOverTime):
    """The linear recurrent unit: see `bp.LRU`."""

    engine = layers.LRU


class DiagonalSSM(LinearOverTime):
    """S5's diagonal state space: see `bp.DiagonalSSM`."""

    engine = layers.DiagonalSSM
