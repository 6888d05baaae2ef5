"""Planned products: the pattern of A·B or R·A·P is worked out once, its values as often as they change."""

from bppsa_cupy.products.planned_product import PlannedProduct, plan_gram, plan_product
