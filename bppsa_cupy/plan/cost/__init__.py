"""What steps and schedules cost, by models of machines."""

from bppsa_cupy.plan.cost.calibration import calibrated, model_from_json, model_to_json
from bppsa_cupy.plan.cost.list_scheduler import list_schedule, timetable
from bppsa_cupy.plan.cost.models import MODELS, cost_model_of, find_model
from bppsa_cupy.plan.cost.ranks import RankTimes, message_bytes, rank_times
from bppsa_cupy.plan.cost.schedules import (
    ScheduleCost,
    StepCost,
    preparation_seconds,
    schedule_cost,
    step_cost,
    step_seconds,
    vjp_message_seconds,
    vjp_seconds,
)
from bppsa_cupy.plan.cost.vjps import scan_seconds, with_vjps
