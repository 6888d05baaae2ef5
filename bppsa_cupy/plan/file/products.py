"""Patterns and products as files hold them, by their digests.

/patterns/<digest>      rows, columns; indptr, indices
/products/<a>_<b>       kind, multiply_adds, pattern (a digest); the maps of its kind
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import h5py

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.file.fields import integers, members, naming, number, text
from bppsa_cupy.plan.product import MAPS, Product, check_product
from bppsa_cupy.system.hdf5 import write_array


def write_patterns(file: h5py.File, patterns: Iterable[Pattern]) -> None:
    """Write /patterns: each different one once."""
    folder = file.create_group("patterns")
    for pattern in sorted(set(patterns), key=attrgetter("digest")):
        _write_pattern(folder.create_group(pattern.digest), pattern)


def _write_pattern(group: h5py.Group, pattern: Pattern) -> None:
    group.attrs["rows"], group.attrs["columns"] = pattern.shape
    write_array(group, "indptr", pattern.indptr, compress=True)
    write_array(group, "indices", pattern.indices, compress=True)


def write_products(file: h5py.File, products: Iterable[Product], folder: str = "products") -> None:
    """Write a folder of products: those of equal factors once."""
    group = file.create_group(folder)
    different = {(product.a.digest, product.b.digest): product for product in products}
    for (a, b), product in sorted(different.items()):
        _write_product(group.create_group(f"{a}_{b}"), product)


def _write_product(group: h5py.Group, product: Product) -> None:
    group.attrs["kind"] = product.kind
    group.attrs["multiply_adds"] = product.multiply_adds
    group.attrs["pattern"] = product.pattern.digest
    for name, array in product.maps.items():
        write_array(group, name, array, compress=True)


def read_patterns(file: h5py.File) -> dict[str, Pattern]:
    """The patterns of a file by digest. Raises PlanError where a pattern has another digest."""
    patterns = {}
    for name, group in members(file, "patterns"):
        with naming(file.filename, f"pattern {name[:12]}"):
            shape = number(group, "rows"), number(group, "columns")
            patterns[name] = Pattern(shape, integers(group, "indptr"), integers(group, "indices"))
            if patterns[name].digest != name:
                raise PlanError("its content has another digest")
    return patterns


def read_product(group: h5py.Group, patterns: dict[str, Pattern]) -> Product:
    """The product in a group, /products/<a>_<b>, checked. Raises PlanError naming what is broken."""
    a, _, b = group.name.rpartition("/")[2].partition("_")
    with naming(group.file.filename, f"product {a[:12]}_{b[:12]}"):
        c, kind = text(group, "pattern"), text(group, "kind")
        for digest in (a, b, c):
            if digest not in patterns:
                raise PlanError(f"pattern {digest[:12]} is missing")
        maps = {name: integers(group, name) for name in MAPS.get(kind, ())}
        for array in maps.values():
            array.flags.writeable = False
        terms = number(group, "multiply_adds")
        product = Product(patterns[a], patterns[b], patterns[c], kind, terms, maps)
        check_product(product)
    return product
