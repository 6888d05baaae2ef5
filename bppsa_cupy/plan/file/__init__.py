"""The plan file, and what other files hold of a plan's parts."""

from bppsa_cupy.plan.file.fields import (
    check_format,
    integers,
    json_attribute,
    members,
    naming,
    numbered,
    text,
    write_format,
)
from bppsa_cupy.plan.file.plan_file import read_plan, write_plan
from bppsa_cupy.plan.file.products import read_patterns, read_product, write_patterns, write_products
