"""Pipelined training with stale weights (Pipelined Training with Stale Weights of Deep Convolutional Neural
Networks, 2020), and other schedules beside it."""

from bppsa_cupy.pipeline.placement import Placement, balanced_ppv
from bppsa_cupy.pipeline.run import Pipeline
from bppsa_cupy.pipeline.schedules import SCHEDULES, PipelineSchedule, make_schedule
