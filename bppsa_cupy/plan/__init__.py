"""The planner: all that is worked out offline, from patterns alone."""

from bppsa_cupy.plan.partition import Message, Partition, RankSchedule, place
from bppsa_cupy.plan.plan import Plan, build_plan, differences, fingerprint
from bppsa_cupy.plan.product import Product
from bppsa_cupy.plan.schedule import SCHEDULES, Schedule, Segment, Step, with_input_gradient
from bppsa_cupy.plan.sizes import Budget, Chain, ChainPlan, Element, MemoryPlan, memory_plan, rank_memory_plan
