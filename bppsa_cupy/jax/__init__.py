"""Recurrent layers for JAX: RNN, GRU, LSTM and layers of any `bp.Cell`, as pure functions of a dict of
parameters, on this package's kernels.

    import bppsa_cupy.jax as bj
    gru = bj.GRU(8, 20)
    params = gru.init(jax.random.key(0))
    y, h = gru(params, x)

docs/how-to/jax.md says what works and what is refused. Importing this without JAX raises ImportError, which
names the extra to install; nothing else in the package needs it.

What the way back needs are arrays of JAX's: the forward pass puts out states and gates beside its results
(`MatrixRecurrent.kept_shapes`), and the way back takes them in. So nothing is computed again, and no pass of
ours is alive between the two: JAX hands residuals on, drops them and makes them again as it does its own,
under jit, vmap, checkpoint and several passes at once, and a way back that is never run leaves nothing after.
(bppsa_cupy.torch keeps the passes themselves, until PyTorch frees their tickets; a compiled function of JAX
has no such moment.) The price is one copy on either way of what is kept, and of the parameters; all else is
read and written where it lies.

The kernels run inside of `jax.experimental.buffer_callback`, which hands over memory and makes no arrays of
JAX's: a callback that waits for JAX can stop for ever where few threads are left. `passes` has the callbacks,
`operators` the primitives around them, whose rule for vmap takes all samples into one batch, `derivatives`
the `jax.custom_vjp`, `layers` what is public.
"""

from bppsa_cupy.system.optional import need

need("bppsa_cupy.jax", "jax", "JAX", (0, 6, 2))  # whose buffer_callback it takes

from bppsa_cupy.jax.analysis import jacobians  # noqa: E402
from bppsa_cupy.jax.layers import GRU, LSTM, RNN, CellLayer  # noqa: E402
from bppsa_cupy.jax.linear_layers import (  # noqa: E402
    LRU,
    QRNN,
    RGLRU,
    SRU,
    DiagonalSSM,
    LinearCellLayer,
    MinGRU,
    MinLSTM,
)
from bppsa_cupy.jax.scan import linear_scan  # noqa: E402

__all__ = [
    "GRU",
    "LRU",
    "LSTM",
    "QRNN",
    "RGLRU",
    "RNN",
    "SRU",
    "CellLayer",
    "DiagonalSSM",
    "LinearCellLayer",
    "MinGRU",
    "MinLSTM",
    "jacobians",
    "linear_scan",
]
