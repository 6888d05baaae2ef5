"""The file of a planned product: HDF5, sealed, everything checked when it is read.

/                      format = "bppsa-product", format_version; factors (JSON), the digests of their
                       patterns; multiplications (JSON), of each the numbers of its two operands
/patterns, /products   as in a plan (plan/file/products.py); products are those for several samples
/one_sample            those for one sample, where they are others, as /products has them
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import h5py

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.file import (
    check_format,
    json_attribute,
    members,
    naming,
    read_patterns,
    read_product,
    write_format,
    write_patterns,
    write_products,
)
from bppsa_cupy.plan.product import Product
from bppsa_cupy.products.multiplications import Multiplication
from bppsa_cupy.system.hdf5 import create, open_file

FORMAT = "bppsa-product"
FORMAT_VERSION = 1


def write_multiplications(
    path: str | os.PathLike[str], factors: Sequence[Pattern], multiplications: Sequence[Multiplication]
) -> None:
    """Write factors and multiplications, whole or not at all. Raises PlanError."""
    many = [multiplication.many for multiplication in multiplications]
    one = [
        multiplication.one
        for multiplication in multiplications
        if multiplication.one.kind != multiplication.many.kind
    ]
    with create(path, sealed=True, error=PlanError) as file:
        write_format(file, FORMAT, FORMAT_VERSION)
        file.attrs["factors"] = json.dumps([factor.digest for factor in factors])
        file.attrs["multiplications"] = json.dumps([[m.left, m.right] for m in multiplications])
        write_patterns(file, [*factors, *(product.pattern for product in many)])
        write_products(file, many)
        write_products(file, one, "one_sample")


def read_multiplications(
    path: str | os.PathLike[str], *, foreign: bool = False
) -> tuple[list[Pattern], list[Multiplication]]:
    """The factors and multiplications that `write_multiplications` wrote.

    foreign  the file may be anyone's: the HDF5 library reads it in a child process first
    Raises PlanError naming what is broken: a damaged, truncated or foreign file, another version, a map out
    of range, a product that is missing.
    """
    with open_file(path, sealed=True, foreign=foreign, error=PlanError) as file:
        check_format(file, FORMAT, FORMAT_VERSION, "a planned product", "plan it again")
        patterns = read_patterns(members(file, "patterns"))
        many = _products(file, "products", patterns)
        one = _products(file, "one_sample", patterns)
        digests, pairs = (json_attribute(file, name, list) for name in ("factors", "multiplications"))
        with naming(file.filename, "multiplications"):
            for digest in digests:
                if not isinstance(digest, str) or digest not in patterns:
                    raise PlanError(f"pattern {str(digest)[:12]} of a factor is missing")
            factors = [patterns[digest] for digest in digests]
            return factors, _multiplications(factors, pairs, many, one)


def _products(file: h5py.File, folder: str, patterns: dict[str, Pattern]) -> dict[tuple[str, str], Product]:
    made = [read_product(group, patterns) for _, group in members(file, folder)]
    return {(product.a.digest, product.b.digest): product for product in made}


def _multiplications(
    factors: list[Pattern],
    pairs: list[Any],
    many: dict[tuple[str, str], Product],
    one: dict[tuple[str, str], Product],
) -> list[Multiplication]:
    """The multiplications by the numbers of their operands, each used once."""
    operands, made, waiting = list(factors), [], set(range(len(factors)))
    for pair in pairs:
        numbers = [number for number in pair if type(number) is int] if isinstance(pair, list) else []
        if numbers != pair or len(pair) != 2 or len({*numbers} & waiting) != 2:
            raise PlanError(f"{pair!r} are no two of the operands {sorted(waiting)}")
        left, right = pair
        key = operands[left].digest, operands[right].digest
        if key not in many:
            raise PlanError(f"product {key[0][:12]}_{key[1][:12]} is missing")
        product = many[key]
        made.append(Multiplication(left, right, product, one.get(key, product)))
        if made[-1].one.pattern != product.pattern:
            raise PlanError(f"product {key[0][:12]}_{key[1][:12]} has two patterns")
        waiting = waiting - {left, right} | {len(operands)}
        operands.append(product.pattern)
    if not made or len(waiting) != 1:
        raise PlanError(f"{len(pairs)} multiplications of {len(factors)} factors do not give one product")
    return made
