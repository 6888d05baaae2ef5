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
from bppsa_cupy.plan.file.fields import integers, naming, number, product_patterns, text
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


def read_patterns(groups: list[tuple[str, h5py.Group]]) -> dict[str, Pattern]:
    """The patterns by digest, which each has to have.

    Raises PlanError where it is another one.
    """
    patterns = {}
    for name, group in groups:
        with naming(group.file.filename, f"pattern {name[:12]}"):
            shape = number(group, "rows"), number(group, "columns")
            patterns[name] = Pattern(shape, integers(group, "indptr"), integers(group, "indices"))
            if patterns[name].digest != name:
                raise PlanError("its content has another digest")
    return patterns


def read_product(group: h5py.Group, patterns: dict[str, Pattern]) -> Product:
    """The product in a group, checked. Raises PlanError naming what is broken."""
    a, b, c = product_patterns(group, patterns)
    with naming(group.file.filename, f"product {a.digest[:12]}_{b.digest[:12]}"):
        kind = text(group, "kind")
        maps = {name: integers(group, name) for name in MAPS.get(kind, ())}
        for array in maps.values():
            array.flags.writeable = False
        product = Product(a, b, c, kind, number(group, "multiply_adds"), maps)
        check_product(product)
    return product
