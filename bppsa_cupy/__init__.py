"""Back-propagation as a parallel scan over sparse transposed Jacobians (BPPSA, Wang et al. 2020)."""

from importlib.metadata import version as _version

import bppsa_cupy.functional as functional
from bppsa_cupy.cells import Cell
from bppsa_cupy.csr import Pattern
from bppsa_cupy.distributed import Group, distribute
from bppsa_cupy.errors import (
    BppsaError,
    CellError,
    CheckpointError,
    DataError,
    DeviceError,
    DistributedError,
    JacobianFileError,
    LabelError,
    NonFiniteError,
    PassError,
    PlanError,
    PlanMismatchError,
    PruneError,
    ShapeError,
)
from bppsa_cupy.jacobians.max_pool2d_exact import exact_max_pool2d
from bppsa_cupy.layers import *  # noqa: F403
from bppsa_cupy.layers import __all__ as _layers
from bppsa_cupy.network import Sequential, check_cell, fold_batch_norm, prune
from bppsa_cupy.pipeline import Pipeline, Placement, balanced_ppv
from bppsa_cupy.plan import Partition, Plan
from bppsa_cupy.products import PlannedProduct, plan_product
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.lyapunov import lyapunov_exponents
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords
from bppsa_cupy.records.spectra import SpanProduct, log_gradient_norms, singular_values, span_product
from bppsa_cupy.scan import scan
from bppsa_cupy.training.clipping import clip_grad_norm
from bppsa_cupy.training.losses import cross_entropy, mse_loss
from bppsa_cupy.training.optimizers import SGD, Adam, AdamW
from bppsa_cupy.training.rebuild import load_network

__version__ = _version("bppsa-cupy")

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "BppsaError",
    "Cell",
    "CellError",
    "CheckpointError",
    "DataError",
    "DeviceError",
    "DistributedError",
    "Group",
    "JacobianFileError",
    "JacobianRecord",
    "JacobianRecords",
    "LabelError",
    "NonFiniteError",
    "Partition",
    "PassError",
    "Pattern",
    "Pipeline",
    "Placement",
    "Plan",
    "PlanError",
    "PlanMismatchError",
    "PlannedProduct",
    "PruneError",
    "Sequential",
    "ShapeError",
    "SpanProduct",
    "balanced_ppv",
    "check_cell",
    "clip_grad_norm",
    "cross_entropy",
    "distribute",
    "exact_max_pool2d",
    "fold_batch_norm",
    "functional",
    "load_jacobians",
    "load_network",
    "log_gradient_norms",
    "lyapunov_exponents",
    "mse_loss",
    "plan_product",
    "prune",
    "save_jacobians",
    "scan",
    "singular_values",
    "span_product",
    *_layers,
]
