"""How large the products of a chain are: counted before they are made, or read off them."""

from bppsa_cupy.plan.sizes.chain_sizes import ChainSizes
from bppsa_cupy.plan.sizes.counted import CountedSizes, count
from bppsa_cupy.plan.sizes.equal_elements import EqualElements
from bppsa_cupy.plan.sizes.planned import PlannedSizes
