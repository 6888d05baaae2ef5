"""The symbolic product: pattern, kind and maps of C = A·B."""

from bppsa_cupy.plan.product.check import check_against_new, check_product
from bppsa_cupy.plan.product.symbolic import MAPS, Product, check_shapes, choose_kind, map_bytes, multiply
