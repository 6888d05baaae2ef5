"""The cost models there are: as they were measured here, or else the built-in estimates."""

from __future__ import annotations

import math
from dataclasses import replace

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.cost.calibration import calibrated
from bppsa_cupy.plan.cost_model import IDEAL, CostModel, Link, Rate

#: What `bppsa-bench calibrate` found on 2 cores of an AMD EPYC (Zen 5), in round numbers.
_HOST_RATES = {
    "csr_mv": Rate(3.4e10, 4e10, 1.2e9),
    "csr_mv large": Rate(8e9, 1.5e10, 5e8),
    "dense": Rate(5e10, 4.5e10),
    "fill": Rate(3e9, 2e10),
    "full_rows": Rate(math.inf, 7e9, 5e8),
    "full_rows large": Rate(math.inf, 2e9, 1.2e8),
    "row_wise": Rate(3e9, 4e9, 2.3e8),
    "row_wise large": Rate(1.7e9, 4e9, 1e8),
    "scale_columns": Rate(math.inf, 6e10, 6e8),
    "scale_columns large": Rate(math.inf, 2e10, 3.6e8),
    "scale_rows": Rate(math.inf, 9e10, 6.5e8),
    "scale_rows large": Rate(math.inf, 2e10, 3.6e8),
    "select_rows": Rate(math.inf, 7e10, 9e8),
    "select_rows large": Rate(math.inf, 1.3e10, 1.8e8),
    "terms": Rate(math.inf, 6e9, 2.6e8),
    "terms large": Rate(3e9, 8e9, 1e8),
    "transpose": Rate(math.inf, 2e10),
    "vjp": Rate(3.2e10, 5e10),
}

#: Two processes of one host, and two GPUs over pinned memory of their host.
_HOST_LINK, _CUDA_LINK = Link(2e-5, 4e9), Link(5e-5, 1e10)

#: `host` and `cuda` are estimates for where nothing was measured; `cuda` is of an H200's copy rate and a
#: launch inside a CUDA graph.
MODELS = {
    "ideal": IDEAL,
    "host": CostModel("host", Rate(2e10, 3e10, 1e9), 4e-6, 7e-6, _HOST_RATES, _HOST_LINK),
    "cuda": CostModel("cuda", Rate(1.5e13, 3.5e12), 2.5e-6, 2e-5, {"vjp": Rate(2e13, 3.5e12)}, _CUDA_LINK),
}


def find_model(name: str | CostModel) -> CostModel:
    """The cost model called `name`: as `bppsa-bench calibrate` measured it here, else the built-in one.

    Raises PlanError for an unknown one.
    """
    if isinstance(name, CostModel):
        return name
    if not is_one_of(name, MODELS):
        raise PlanError(f"cost model {name!r} was asked for: the models are {', '.join(MODELS)}")
    measured = None if name == "ideal" else calibrated(name)
    return MODELS[name] if measured is None else replace(measured, calibrated=True)


def cost_model_of(device: str) -> CostModel:
    """The cost model of the device called `device`; one without its own is taken for the host."""
    return find_model(device if device in ("host", "cuda") else "host")
