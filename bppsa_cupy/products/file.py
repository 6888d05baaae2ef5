"""The file of a planned product: HDF5, sealed, everything checked when it is read.

/                      format = "bppsa-product", format_version; multiplications (JSON), of each the numbers
                       of its two operands
/factors/<i>           pattern (a digest), values_shape (JSON); order (nnz,), the position among a factor's
                       values of each entry, only where values are not in the order of the pattern
/patterns, /products   as in a plan (plan/file/products.py); products are those for several samples
/one_sample            those for one sample, where they are others, as /products has them
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.file import (
    check_format,
    integers,
    json_attribute,
    members,
    naming,
    numbered,
    read_patterns,
    read_product,
    text,
    write_format,
    write_patterns,
    write_products,
)
from bppsa_cupy.plan.product import Product
from bppsa_cupy.products.factors import Factor
from bppsa_cupy.products.multiplications import Multiplication
from bppsa_cupy.system.hdf5 import create, open_file, write_array

FORMAT = "bppsa-product"
FORMAT_VERSION = 2


def write_multiplications(
    path: str | os.PathLike[str], factors: Sequence[Factor], multiplications: Sequence[Multiplication]
) -> None:
    """Write factors and multiplications, whole or not at all. Raises PlanError."""
    many = [multiplication.many for multiplication in multiplications]
    one = [
        multiplication.one
        for multiplication in multiplications
        if multiplication.one.kind != multiplication.many.kind
    ]
    with create(path, error=PlanError) as file:
        write_format(file, FORMAT, FORMAT_VERSION)
        file.attrs["multiplications"] = json.dumps([[m.left, m.right] for m in multiplications])
        for number, factor in enumerate(factors):
            group = file.create_group(f"factors/{number}")
            group.attrs["pattern"] = factor.pattern.digest
            group.attrs["values_shape"] = json.dumps(factor.shape)
            if factor.order is not None:
                write_array(group, "order", factor.order, compress=True)
        write_patterns(
            file, [*(factor.pattern for factor in factors), *(product.pattern for product in many)]
        )
        write_products(file, many)
        write_products(file, one, "one_sample")


def read_multiplications(path: str | os.PathLike[str]) -> tuple[list[Factor], list[Multiplication]]:
    """The factors and multiplications that `write_multiplications` wrote.

    Raises PlanError naming what is broken: a damaged, truncated or foreign file, another version, a map out
    of range, a product that is missing.
    """
    with open_file(path, error=PlanError) as file:
        check_format(file, FORMAT, FORMAT_VERSION, "a planned product", "plan it again")
        patterns = read_patterns(file)
        factors = [_read_factor(group, patterns) for group in numbered(file, "factors")]
        many, one = (
            {name: read_product(group, patterns) for name, group in members(file, folder)}
            for folder in ("products", "one_sample")
        )
        pairs = json_attribute(file, "multiplications", list)
        with naming(file.filename, "multiplications"):
            return factors, _multiplications(factors, pairs, many, one)


def holds_product(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that it holds a planned product; nothing else of it is checked."""
    try:
        with open_file(path, verify=False, error=PlanError) as file:
            return text(file, "format") == FORMAT
    except PlanError:
        return False


def _read_factor(group: h5py.Group, patterns: Mapping[str, Pattern]) -> Factor:
    with naming(group.file.filename, group.name):
        digest, order = text(group, "pattern"), None
        if digest not in patterns:
            raise PlanError(f"pattern {digest[:12]} is missing")
        factor, nnz = Factor.of_pattern(patterns[digest]), patterns[digest].nnz
        shape = tuple(json_attribute(group, "values_shape", list))
        if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) != nnz:
            raise PlanError(f"values of shape {shape} do not fit a pattern of {nnz} entries")
        if "order" in group:
            order = integers(group, "order")
            if not np.array_equal(np.sort(order), np.arange(nnz)):
                raise PlanError(f"order is no permutation of the {nnz} entries")
    if order is None and shape == factor.shape:
        return factor
    return replace(factor, structure=(), shape=shape, order=order)


def _multiplications(
    factors: list[Factor], pairs: list[Any], many: dict[str, Product], one: dict[str, Product]
) -> list[Multiplication]:
    """The multiplications by the numbers of their operands, each used once."""
    operands, made, waiting = [factor.pattern for factor in factors], [], set(range(len(factors)))
    for pair in pairs:
        numbers = [number for number in pair if type(number) is int] if isinstance(pair, list) else []
        if numbers != pair or len(pair) != 2 or len({*numbers} & waiting) != 2:
            raise PlanError(f"{pair!r} are no two of the operands {sorted(waiting)}")
        left, right = pair
        a, b = operands[left].digest, operands[right].digest
        key, name = f"{a}_{b}", f"product {a[:12]}_{b[:12]}"
        if key not in many:
            raise PlanError(f"{name} is missing")
        product = many[key]
        made.append(Multiplication(left, right, product, one.get(key, product)))
        if made[-1].one.pattern != product.pattern:
            raise PlanError(f"{name} has two patterns")
        waiting = waiting - {left, right} | {len(operands)}
        operands.append(product.pattern)
    if not made or len(waiting) != 1:
        raise PlanError(f"{len(pairs)} multiplications of {len(factors)} factors do not give one product")
    return made
