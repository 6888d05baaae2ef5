"""Recurrent modules for PyTorch: torch.nn's RNN, GRU and LSTM, and layers of any `bp.Cell`, on this package's
kernels; and pruned Conv2d and Linear.

    import bppsa_cupy.torch
    model = bppsa_cupy.torch.convert(model)
    records = bppsa_cupy.torch.jacobians(model, x)

docs/how-to/pytorch.md says what works and what is refused. Importing this without PyTorch raises ImportError,
which names the extra to install; nothing else in the package needs it.
"""

from bppsa_cupy.system.optional import need

need("bppsa_cupy.torch", "torch", "PyTorch", (2, 4))  # whose torch.library registers what the modules take
del need

from bppsa_cupy.torch.analysis import jacobians  # noqa: E402
from bppsa_cupy.torch.convert import ModuleReport, convert, converting, report, revert  # noqa: E402
from bppsa_cupy.torch.linear_layers import (  # noqa: E402
    LRU,
    QRNN,
    RGLRU,
    SRU,
    DiagonalSSM,
    LinearCellLayer,
    MinGRU,
    MinLSTM,
)
from bppsa_cupy.torch.modules import GRU, LSTM, RNN, CellLayer  # noqa: E402
from bppsa_cupy.torch.products import plan_matmul, plan_product  # noqa: E402
from bppsa_cupy.torch.pruned import PrunedConv2d, PrunedLinear  # noqa: E402
from bppsa_cupy.torch.recurrence import Recurrence, recurrence  # noqa: E402
from bppsa_cupy.torch.scan import linear_scan  # noqa: E402
from bppsa_cupy.torch.tangents import lyapunov_exponents  # noqa: E402

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
    "ModuleReport",
    "PrunedConv2d",
    "PrunedLinear",
    "Recurrence",
    "convert",
    "converting",
    "jacobians",
    "linear_scan",
    "lyapunov_exponents",
    "plan_matmul",
    "plan_product",
    "recurrence",
    "report",
    "revert",
]
