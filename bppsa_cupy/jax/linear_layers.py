"""Linear recurrent layers as pure functions: JAX's operations around `linear_scan`."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bppsa_cupy import layers
from bppsa_cupy.jax import cell_functions
from bppsa_cupy.jax.layers import OverTime
from bppsa_cupy.jax.parts import Given
from bppsa_cupy.jax.scan import linear_scan
from bppsa_cupy.layers.linear_recurrent import Library

_LIBRARY = Library(
    module=jnp,
    scan=linear_scan,
    concatenate=jnp.concatenate,
    stack=jnp.stack,
    zeros=lambda array, shape: jnp.zeros(shape, array.dtype),
    steps=lambda array, count: jnp.arange(count),
    functions=cell_functions,
)


class LinearOverTime(OverTime):
    """What functions of linear recurrences share. Under jit, grad, vmap, jvp and checkpoint."""

    __slots__ = ()
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
    """A simple recurrent unit: see `bp.SRU`."""

    __slots__ = ()
    engine = layers.SRU


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
