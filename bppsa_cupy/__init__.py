"""Back-propagation as a parallel scan over sparse transposed Jacobians (BPPSA, Wang et al. 2020).

Importing the package imports nothing else: each name imports its subpackage at its first use.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import bppsa_cupy.functional as functional
    from bppsa_cupy.cells import Cell
    from bppsa_cupy.csr import Pattern
    from bppsa_cupy.devices import set_precision
    from bppsa_cupy.distributed import Group, accumulate, distribute
    from bppsa_cupy.errors import (
        ArgumentError,
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
    from bppsa_cupy.network import Sequential, prune, regrow
    from bppsa_cupy.pipeline import Pipeline, Placement, balanced_ppv
    from bppsa_cupy.plan import Partition, Plan
    from bppsa_cupy.products import PlannedProduct, plan_gram, plan_product
    from bppsa_cupy.records.depth import depth_singular_values, end_to_end
    from bppsa_cupy.records.file import load_jacobians, save_jacobians
    from bppsa_cupy.records.plots import (
        plot_eigenvalues,
        plot_history,
        plot_singular_values,
        plot_spectrum,
    )
    from bppsa_cupy.records.record import JacobianRecord
    from bppsa_cupy.records.records import JacobianRecords
    from bppsa_cupy.records.spectra import (
        SpanProduct,
        log_gradient_norms,
        log_singular_values,
        singular_values,
        span_product,
    )
    from bppsa_cupy.records.streaming import LyapunovSpectrum
    from bppsa_cupy.records.vectors import LyapunovVectors, lyapunov_vectors
    from bppsa_cupy.scan import scan
    from bppsa_cupy.stability.exponents import lyapunov_exponents
    from bppsa_cupy.stability.fixed_points import FixedPoints, fixed_points
    from bppsa_cupy.timescan.linear_scan import ScanGradients, linear_scan, linear_scan_backward
    from bppsa_cupy.tools.pictures.report import Report, report
    from bppsa_cupy.training.captured import CapturedStep
    from bppsa_cupy.training.losses import cross_entropy, mse_loss
    from bppsa_cupy.training.optimizers import SGD, Adam, AdamW, clip_grad_norm
    from bppsa_cupy.training.rebuild import load_network
    from bppsa_cupy.training.sparsity import GradualPruning, RigL

    __version__: str

    __all__ = [
        "SGD",
        "Adam",
        "AdamW",
        "ArgumentError",
        "BppsaError",
        "CapturedStep",
        "Cell",
        "CellError",
        "CheckpointError",
        "DataError",
        "DeviceError",
        "DistributedError",
        "FixedPoints",
        "GradualPruning",
        "Group",
        "JacobianFileError",
        "JacobianRecord",
        "JacobianRecords",
        "LabelError",
        "LyapunovSpectrum",
        "LyapunovVectors",
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
        "Report",
        "RigL",
        "ScanGradients",
        "Sequential",
        "ShapeError",
        "SpanProduct",
        "accumulate",
        "balanced_ppv",
        "clip_grad_norm",
        "cross_entropy",
        "depth_singular_values",
        "distribute",
        "end_to_end",
        "exact_max_pool2d",
        "fixed_points",
        "functional",
        "linear_scan",
        "linear_scan_backward",
        "load_jacobians",
        "load_network",
        "log_gradient_norms",
        "log_singular_values",
        "lyapunov_exponents",
        "lyapunov_vectors",
        "mse_loss",
        "plan_gram",
        "plan_product",
        "plot_eigenvalues",
        "plot_history",
        "plot_singular_values",
        "plot_spectrum",
        "prune",
        "regrow",
        "report",
        "save_jacobians",
        "scan",
        "set_precision",
        "singular_values",
        "span_product",
        *_layers,
    ]

#: The public names, but for those of `layers`, by the module that has them.
_NAMES = {
    "cells": ("Cell",),
    "csr": ("Pattern",),
    "devices": ("set_precision",),
    "distributed": ("Group", "accumulate", "distribute"),
    "errors": (
        "ArgumentError",
        "BppsaError",
        "CellError",
        "CheckpointError",
        "DataError",
        "DeviceError",
        "DistributedError",
        "JacobianFileError",
        "LabelError",
        "NonFiniteError",
        "PassError",
        "PlanError",
        "PlanMismatchError",
        "PruneError",
        "ShapeError",
    ),
    "jacobians.max_pool2d_exact": ("exact_max_pool2d",),
    "network": ("Sequential", "prune", "regrow"),
    "pipeline": ("Pipeline", "Placement", "balanced_ppv"),
    "plan": ("Partition", "Plan"),
    "products": ("PlannedProduct", "plan_gram", "plan_product"),
    "records.depth": ("depth_singular_values", "end_to_end"),
    "records.file": ("load_jacobians", "save_jacobians"),
    "records.plots": ("plot_eigenvalues", "plot_history", "plot_singular_values", "plot_spectrum"),
    "records.record": ("JacobianRecord",),
    "records.records": ("JacobianRecords",),
    "records.spectra": (
        "SpanProduct",
        "log_gradient_norms",
        "log_singular_values",
        "singular_values",
        "span_product",
    ),
    "records.streaming": ("LyapunovSpectrum",),
    "records.vectors": ("LyapunovVectors", "lyapunov_vectors"),
    "scan": ("scan",),
    "stability.exponents": ("lyapunov_exponents",),
    "stability.fixed_points": ("FixedPoints", "fixed_points"),
    "tools.pictures.report": ("Report", "report"),
    "timescan.linear_scan": ("ScanGradients", "linear_scan", "linear_scan_backward"),
    "training.captured": ("CapturedStep",),
    "training.losses": ("cross_entropy", "mse_loss"),
    "training.optimizers": ("SGD", "Adam", "AdamW", "clip_grad_norm"),
    "training.rebuild": ("load_network",),
    "training.sparsity": ("GradualPruning", "RigL"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
#: Subpackages that are attributes without an import.
_ROOMS = (
    "arguments", "cells", "conversion", "csr", "devices", "distributed", "errors", "functional", "geometry",
    "jacobians", "layers", "network", "pipeline", "plan", "products", "raw_kernels", "records",
    "stability", "system", "timescan", "training",
)  # fmt: skip


if not TYPE_CHECKING:  # which knows all names, and is to complain of others

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"{__name__}.{name}")
        if name == "__version__":
            from importlib.metadata import version

            value: Any = version("bppsa-cupy")
        elif name == "__all__":
            value = sorted((*_HOMES, "functional", *import_module(f"{__name__}.layers").__all__))
        elif name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        elif not name.startswith("_") and name in import_module(f"{__name__}.layers").__all__:
            value = getattr(import_module(f"{__name__}.layers"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        modules = (name for name in globals() if f"{__name__}.{name}" in sys.modules)
        return sorted({*__getattr__("__all__"), *_ROOMS, *modules, "__all__", "__doc__", "__version__"})


class _Package(ModuleType):
    """`bp.scan` is the function, also where the folder of that name is imported later."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_package = name == "scan" and isinstance(value, ModuleType)
        super().__setattr__(name, value.scan if is_package else value)


sys.modules[__name__].__class__ = _Package
