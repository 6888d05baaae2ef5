"""Back-propagation as a parallel scan over sparse transposed Jacobians (BPPSA, Wang et al. 2020).

Importing the package imports nothing else: each name imports its subpackage at its first use.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import bppsa_cupy.functional as functional
    from bppsa_cupy.cells import Cell as Cell
    from bppsa_cupy.csr import Pattern as Pattern
    from bppsa_cupy.devices import set_precision as set_precision
    from bppsa_cupy.distributed import Group as Group
    from bppsa_cupy.distributed import accumulate as accumulate
    from bppsa_cupy.distributed import distribute as distribute
    from bppsa_cupy.errors import ArgumentError as ArgumentError
    from bppsa_cupy.errors import BppsaError as BppsaError
    from bppsa_cupy.errors import CellError as CellError
    from bppsa_cupy.errors import CheckpointError as CheckpointError
    from bppsa_cupy.errors import DataError as DataError
    from bppsa_cupy.errors import DeviceError as DeviceError
    from bppsa_cupy.errors import DistributedError as DistributedError
    from bppsa_cupy.errors import JacobianFileError as JacobianFileError
    from bppsa_cupy.errors import LabelError as LabelError
    from bppsa_cupy.errors import NonFiniteError as NonFiniteError
    from bppsa_cupy.errors import PassError as PassError
    from bppsa_cupy.errors import PlanError as PlanError
    from bppsa_cupy.errors import PlanMismatchError as PlanMismatchError
    from bppsa_cupy.errors import PruneError as PruneError
    from bppsa_cupy.errors import ShapeError as ShapeError
    from bppsa_cupy.jacobians.max_pool2d_exact import exact_max_pool2d as exact_max_pool2d
    from bppsa_cupy.layers import *  # noqa: F403
    from bppsa_cupy.network import Sequential as Sequential
    from bppsa_cupy.network import prune as prune
    from bppsa_cupy.network import regrow as regrow
    from bppsa_cupy.pipeline import Pipeline as Pipeline
    from bppsa_cupy.pipeline import Placement as Placement
    from bppsa_cupy.pipeline import balanced_ppv as balanced_ppv
    from bppsa_cupy.plan import Partition as Partition
    from bppsa_cupy.plan import Plan as Plan
    from bppsa_cupy.products import PlannedProduct as PlannedProduct
    from bppsa_cupy.products import plan_gram as plan_gram
    from bppsa_cupy.products import plan_product as plan_product
    from bppsa_cupy.records.depth import depth_singular_values as depth_singular_values
    from bppsa_cupy.records.depth import end_to_end as end_to_end
    from bppsa_cupy.records.file import load_jacobians as load_jacobians
    from bppsa_cupy.records.file import save_jacobians as save_jacobians
    from bppsa_cupy.records.plots import plot_eigenvalues as plot_eigenvalues
    from bppsa_cupy.records.plots import plot_history as plot_history
    from bppsa_cupy.records.plots import plot_singular_values as plot_singular_values
    from bppsa_cupy.records.plots import plot_spectrum as plot_spectrum
    from bppsa_cupy.records.record import JacobianRecord as JacobianRecord
    from bppsa_cupy.records.records import JacobianRecords as JacobianRecords
    from bppsa_cupy.records.spectra import LyapunovVectors as LyapunovVectors
    from bppsa_cupy.records.spectra import log_gradient_norms as log_gradient_norms
    from bppsa_cupy.records.spectra import log_singular_values as log_singular_values
    from bppsa_cupy.records.spectra import lyapunov_vectors as lyapunov_vectors
    from bppsa_cupy.records.spectra import singular_values as singular_values
    from bppsa_cupy.records.streaming import LyapunovSpectrum as LyapunovSpectrum
    from bppsa_cupy.scan import scan as scan
    from bppsa_cupy.stability.exponents import lyapunov_exponents as lyapunov_exponents
    from bppsa_cupy.stability.fixed_points import FixedPoints as FixedPoints
    from bppsa_cupy.stability.fixed_points import fixed_points as fixed_points
    from bppsa_cupy.timescan.linear_scan import ScanGradients as ScanGradients
    from bppsa_cupy.timescan.linear_scan import linear_scan as linear_scan
    from bppsa_cupy.timescan.linear_scan import linear_scan_backward as linear_scan_backward
    from bppsa_cupy.tools.pictures.report import Report as Report
    from bppsa_cupy.tools.pictures.report import report as report
    from bppsa_cupy.training.captured import CapturedStep as CapturedStep
    from bppsa_cupy.training.checkpoint import load_network as load_network
    from bppsa_cupy.training.losses import cross_entropy as cross_entropy
    from bppsa_cupy.training.losses import mse_loss as mse_loss
    from bppsa_cupy.training.optimizers import SGD as SGD
    from bppsa_cupy.training.optimizers import Adam as Adam
    from bppsa_cupy.training.optimizers import AdamW as AdamW
    from bppsa_cupy.training.optimizers import clip_grad_norm as clip_grad_norm
    from bppsa_cupy.training.settings import GradualPruning as GradualPruning
    from bppsa_cupy.training.settings import RigL as RigL

    __version__: str

#: The public names by the module that has them; those of `layers` are its `__all__`.
_NAMES = {
    "cells": "Cell",
    "csr": "Pattern",
    "devices": "set_precision",
    "distributed": "Group accumulate distribute",
    "errors": "ArgumentError BppsaError CellError CheckpointError DataError DeviceError DistributedError "
    "JacobianFileError LabelError NonFiniteError PassError PlanError PlanMismatchError PruneError "
    "ShapeError",
    "jacobians.max_pool2d_exact": "exact_max_pool2d",
    "network": "Sequential prune regrow",
    "pipeline": "Pipeline Placement balanced_ppv",
    "plan": "Partition Plan",
    "products": "PlannedProduct plan_gram plan_product",
    "records.depth": "depth_singular_values end_to_end",
    "records.file": "load_jacobians save_jacobians",
    "records.plots": "plot_eigenvalues plot_history plot_singular_values plot_spectrum",
    "records.record": "JacobianRecord",
    "records.records": "JacobianRecords",
    "records.spectra": "LyapunovVectors log_gradient_norms log_singular_values lyapunov_vectors "
    "singular_values",
    "records.streaming": "LyapunovSpectrum",
    "scan": "scan",
    "stability.exponents": "lyapunov_exponents",
    "stability.fixed_points": "FixedPoints fixed_points",
    "tools.pictures.report": "Report report",
    "timescan.linear_scan": "ScanGradients linear_scan linear_scan_backward",
    "training.captured": "CapturedStep",
    "training.checkpoint": "load_network",
    "training.losses": "cross_entropy mse_loss",
    "training.optimizers": "SGD Adam AdamW clip_grad_norm",
    "training.settings": "GradualPruning RigL",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # which knows all names, and is to complain of others

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            value: Any = version("bppsa-cupy")
        elif name == "__all__":
            value = sorted((*_HOMES, "functional", *import_module(f"{__name__}.layers").__all__))
        elif name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        elif not name.startswith("_") and find_spec(f"{__name__}.{name}"):
            value = import_module(f"{__name__}.{name}")
        elif not name.startswith("_") and name in import_module(f"{__name__}.layers").__all__:
            value = getattr(import_module(f"{__name__}.layers"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        modules = [name for name in globals() if f"{__name__}.{name}" in sys.modules]
        return sorted({*__getattr__("__all__"), *modules, "__all__", "__doc__", "__version__"})


class _Package(ModuleType):
    """`bp.scan` is the function, also where the folder of that name is imported later."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_package = name == "scan" and isinstance(value, ModuleType)
        super().__setattr__(name, value.scan if is_package else value)


sys.modules[__name__].__class__ = _Package
