"""The plan file."""

from bppsa_cupy.plan.file.plan_file import read_outline, read_plan, write_plan
