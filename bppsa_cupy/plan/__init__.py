"""The planner: all that is worked out offline, from patterns alone."""

from bppsa_cupy.plan.build import build_plan, compute_schedule
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.chain_plan import ChainPlan
from bppsa_cupy.plan.compare import differences
from bppsa_cupy.plan.cost.model import model_of
from bppsa_cupy.plan.memory import MemoryPlan, memory_plan
from bppsa_cupy.plan.plan import SCHEDULES, Plan
from bppsa_cupy.plan.product.symbolic import Product
from bppsa_cupy.plan.schedule import Schedule, Segment, Step, with_input_gradient

__all__ = [
    "SCHEDULES",
    "Chain",
    "ChainPlan",
    "Element",
    "MemoryPlan",
    "Plan",
    "Product",
    "Schedule",
    "Segment",
    "Step",
    "build_plan",
    "compute_schedule",
    "differences",
    "memory_plan",
    "model_of",
    "with_input_gradient",
]
