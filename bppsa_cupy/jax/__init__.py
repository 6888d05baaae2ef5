"""Recurrent layers for JAX: RNN, GRU, LSTM and layers of any `bp.Cell`, as pure functions of a dict of
parameters, on this package's kernels.

    import bppsa_cupy.jax as bj
    gru = bj.GRU(8, 20)
    params = gru.init(jax.random.key(0))
    y, h = gru(params, x)

docs/how-to/jax.md says what works and what is refused. Importing this without JAX raises ImportError, which
names the extra to install; nothing else in the package needs it.

The backward pass needs arrays that the forward pass puts out as JAX residuals (`kept_shapes`), so nothing is
computed again and no pass of the engine is alive between the two. The kernels run inside of
`jax.experimental.buffer_callback`, which hands over memory: a callback that waits for JAX can stop for ever.
`passes` has the callbacks, and the primitives around them with their derivatives.
"""

from bppsa_cupy.system.optional import need

need("bppsa_cupy.jax", "jax", "JAX", (0, 6, 2))  # whose buffer_callback it takes
del need

from bppsa_cupy.jax.layers import GRU, LSTM, RNN, CellLayer  # noqa: E402
from bppsa_cupy.jax.products import plan_matmul, plan_product  # noqa: E402
from bppsa_cupy.jax.scan import linear_scan  # noqa: E402

__all__ = ["GRU", "LSTM", "RNN", "CellLayer", "linear_scan", "plan_matmul", "plan_product"]
