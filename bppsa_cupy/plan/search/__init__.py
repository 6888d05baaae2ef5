"""The search for schedules."""

from bppsa_cupy.plan.search.search import Search, compute_schedule
from bppsa_cupy.plan.search.segment_costs import MOST_ELEMENTS, searched_segments
