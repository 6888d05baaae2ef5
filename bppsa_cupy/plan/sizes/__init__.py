"""How large the products of a chain are: counted before they are made, or read off them."""

from bppsa_cupy.plan.sizes.chain_sizes import ChainSizes, count
