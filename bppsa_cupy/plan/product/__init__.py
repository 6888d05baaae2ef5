"""The symbolic product: pattern, kind and maps of C = A·B."""

from bppsa_cupy.plan.product.check import check_against_new, check_product
from bppsa_cupy.plan.product.loops import least_keys
from bppsa_cupy.plan.product.symbolic import (
    MAPS,
    MAXIMAL_TERMS,
    Product,
    check_shapes,
    choose_kind,
    entry_terms,
    has_full_rows,
    map_bytes,
    multiply,
    multiply_masked,
    row_sums,
    term_list,
)
