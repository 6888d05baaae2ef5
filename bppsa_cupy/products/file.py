"""The file of a planned product: HDF5, sealed, checked by its seal when it is read.

/                      format = "bppsa-product", format_version; out_format and pattern (a digest) of the
                       result; multiplications (JSON), of each the numbers of its operands, ~k for the
                       transpose of factor k, and the rows, inner size and columns of its blocks
/factors/<i>           pattern (a digest), values_shape (JSON); order (nnz,), the position among a factor's
                       values of each entry, only where values are not in the order of the pattern
/patterns, /products   as in a plan (plan/file/products.py); products are those for several samples
/masked                the last product, where it is restricted to a pattern
/one_sample            those for one sample, where they are others, as /products has them
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import h5py

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import BppsaError, PlanError
from bppsa_cupy.plan.file import (
    integers,
    json_attribute,
    read_patterns,
    read_product,
    text,
    write_patterns,
    write_products,
)
from bppsa_cupy.products.blocks import coarsen, transpose
from bppsa_cupy.products.factors import Factor
from bppsa_cupy.products.multiplications import Multiplication
from bppsa_cupy.system.hdf5 import check_format, create, open_file, write_array

FORMAT = "bppsa-product"
FORMAT_VERSION = 3


def write_product_file(
    path: str | os.PathLike[str],
    factors: Sequence[Factor],
    multiplications: Sequence[Multiplication],
    out_format: str,
    pattern: Pattern,
) -> None:
    """Write what a planned product is made of, whole or not at all. Raises PlanError."""
    many = [m.many for m in multiplications]
    single = [m.single for m in multiplications if m.single.kind != m.many.kind]
    with create(path, error=PlanError) as file:
        file.attrs.update(format=FORMAT, format_version=FORMAT_VERSION)
        file.attrs["multiplications"] = json.dumps([[m.left, m.right, *m.block] for m in multiplications])
        file.attrs["out_format"], file.attrs["pattern"] = out_format, pattern.digest
        for number, factor in enumerate(factors):
            group = file.create_group(f"factors/{number}")
            group.attrs["pattern"] = factor.pattern.digest
            group.attrs["values_shape"] = json.dumps(factor.shape)
            if factor.order is not None:
                write_array(group, "order", factor.order, compress=True)
        patterns = {pattern, *(factor.pattern for factor in factors)}
        write_patterns(file, patterns.union(*({p.a, p.b, p.pattern} for p in many)))
        write_products(file, [product for product in many if product.kind != "masked"])
        write_products(file, [product for product in many if product.kind == "masked"], "masked")
        write_products(file, single, "one_sample")


def read_product_file(
    path: str | os.PathLike[str],
) -> tuple[list[Factor], list[Multiplication], str, Pattern]:
    """Return the arguments of the `write_product_file` that wrote the file.

    Raises PlanError naming what is broken: a damaged, truncated or foreign file, another version, or a part
    that is missing. The seal vouches for the content.
    """
    with open_file(path, error=PlanError) as file:
        check_format(file, FORMAT, FORMAT_VERSION, PlanError)
        patterns = read_patterns(file)
        factors = [
            _read_factor(file[f"factors/{number}"], patterns) for number in range(len(file["factors"]))
        ]
        full, masked, singles = (
            {name: read_product(group, patterns) for name, group in file[folder].items()}
            for folder in ("products", "masked", "one_sample")
        )
        made: list[Multiplication] = []
        rows = json_attribute(file, "multiplications")
        with naming(file.filename, "multiplications"):
            for left, right, *block in rows:
                a = _operand_pattern(left, factors, made, block[0], block[1])
                b = _operand_pattern(right, factors, made, block[1], block[2])
                key = f"{a.digest}_{b.digest}"
                many = masked if masked and len(made) == len(rows) - 1 else full
                if key not in many:
                    raise _unusable(f"the file lacks product {a.digest[:12]}_{b.digest[:12]}")
                single = many[key] if many[key].maps else singles.get(key, many[key])
                made.append(Multiplication(left, right, many[key], single, (block[0], block[1], block[2])))
        with naming(file.filename, "result"):
            out_format, pattern = text(file, "out_format"), patterns.get(text(file, "pattern"))
            if pattern is None:
                raise _unusable("the file lacks the pattern of the result")
            if out_format not in ("csr", "csc") and not (out_format == "bsr" and made[-1].is_blocked):
                raise _unusable(f"this product cannot have the format {out_format!r}")
        return factors, made, out_format, pattern


def holds_product(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that it holds a planned product; nothing else of it is checked."""
    try:
        with open_file(path, verify=False, error=PlanError) as file:
            return text(file, "format") == FORMAT
    except PlanError:
        return False


@contextmanager
def naming(path: str, content: str) -> Iterator[None]:
    """Put the file's name, and of what is read, before the message of an error inside."""
    try:
        yield
    except BppsaError as error:
        raise PlanError(f"{path}: {content}: {error}") from error


def _unusable(fault: str) -> PlanError:
    return PlanError(f"{fault}: plan the product again")


def _read_factor(group: h5py.Group, patterns: Mapping[str, Pattern]) -> Factor:
    with naming(group.file.filename, group.name):
        digest, order = text(group, "pattern"), None
        if digest not in patterns:
            raise _unusable(f"the file lacks pattern {digest[:12]}")
        factor = Factor.of_pattern(patterns[digest])
        shape = tuple(json_attribute(group, "values_shape"))
        if "order" in group:
            order = integers(group, "order")
    if order is None and shape == factor.shape:
        return factor
    return replace(factor, structure=(), shape=shape, order=order)


def _operand_pattern(
    operand: int, factors: list[Factor], made: list[Multiplication], rows: int, columns: int
) -> Pattern:
    """The pattern of an operand's blocks."""
    if operand < 0:
        return transpose(_operand_pattern(~operand, factors, made, columns, rows))[0]
    if operand >= len(factors):
        m = made[operand - len(factors)]
        pattern = m.many.pattern
        return pattern if m.is_blocked else coarsen(pattern, rows, columns)
    return coarsen(factors[operand].pattern, rows, columns)
