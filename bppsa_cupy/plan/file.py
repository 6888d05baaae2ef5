"""The plan file: HDF5, sealed.

/                       format = "bppsa-plan", format_version, fingerprint, batch_size, workers, itemsize,
                        left_out (JSON); of a plan over ranks partition (JSON), its bounds
/network                JSON
/patterns/<digest>      rows, columns; indptr, indices
/products/<a>_<b>       kind, multiply_adds, pattern (a digest); the maps of its kind
/chains/<i>             matrices (JSON): pattern (a digest), shared and vjp_multiply_adds (an integer or
                        null) of each different one; elements (n,): which of them a_1, …, a_n are; names
                        (JSON) and items (n,) of a_1, …, a_n
/schedules/<name>/<i>   (steps, 6) of level, begin, split, end, kind (0 mv, 1 mm), worker; n, and
                        levels where the schedule has them
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import h5py
import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.partition import Partition
from bppsa_cupy.plan.product import MAPS, Product
from bppsa_cupy.plan.schedule import SCHEDULES, Schedule
from bppsa_cupy.plan.sizes import Chain, ChainPlan, Element
from bppsa_cupy.system.hdf5 import attribute, check_format, create, open_file, read_array, write_array

FORMAT = "bppsa-plan"
FORMAT_VERSION = 3
NUMBERS = ("batch_size", "workers", "itemsize")
MATRIX = ("pattern", "shared", "vjp_multiply_adds")


# ---- writing ----


def write_plan(path: str | os.PathLike[str], plan: Mapping[str, Any]) -> None:
    """Write a plan, given as the fields of a Plan by name. Raises PlanError if the file cannot be written; an
    existing file is then unchanged."""
    chains: tuple[ChainPlan, ...] = plan["chains"]
    products = [product for chain in chains for product in chain.products.values()]
    patterns = [element.pattern for chain in chains for element in chain.chain.elements]
    patterns += [product.pattern for product in products]
    with create(path, error=PlanError) as file:
        file.attrs.update(format=FORMAT, format_version=FORMAT_VERSION)
        file.attrs["fingerprint"] = plan["fingerprint"]
        write_json(file, "network", plan["network"])
        for name in NUMBERS:
            file.attrs[name] = plan[name]
        file.attrs["left_out"] = json.dumps(dict(plan["left_out"]))
        if plan["partition"] is not None:
            file.attrs["partition"] = json.dumps(plan["partition"].bounds)
        write_patterns(file, patterns)
        write_products(file, products)
        folder = file.create_group("chains")
        for index, chain in enumerate(chains):
            group, elements = folder.create_group(str(index)), chain.chain.elements
            # Each different matrix is stored once, and for each element which one it is.
            kinds = [element.matrix for element in elements]
            positions = {kind: position for position, kind in enumerate(dict.fromkeys(kinds))}
            write_json(group, "matrices", [dict(zip(MATRIX, kind, strict=True)) for kind in positions])
            write_array(group, "elements", np.array([positions[k] for k in kinds], np.int32), compress=True)
            write_json(group, "names", [element.name for element in elements])
            write_array(group, "items", np.array([e.item for e in elements], np.int32), compress=True)
        folder = file.create_group("schedules")
        for name in chains[0].schedules if chains else ():
            group = folder.create_group(name)
            for index, chain in enumerate(chains):
                schedule = chain.schedules[name]
                table = schedule.table.astype(index_dtype(schedule.table.max(initial=0)))
                stored = write_array(group, str(index), table, compress=True)
                stored.attrs["n"] = schedule.n
                if schedule.levels is not None:
                    stored.attrs["levels"] = schedule.levels
                if schedule.vjps:
                    stored.attrs["vjps"] = json.dumps(schedule.vjps)


# ---- reading ----


def read_plan(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of a Plan that `write_plan` wrote, by name; the seal vouches for the content.

    Raises PlanError for a damaged, truncated or foreign file, and for another version.
    """
    with open_file(path, error=PlanError) as file:
        check_format(file, FORMAT, FORMAT_VERSION, PlanError)
        patterns = read_patterns(file)
        made = [read_product(group, patterns) for group in file["products"].values()]
        products = {(product.a.digest, product.b.digest): product for product in made}
        names, chains = [name for name in SCHEDULES if name in file["schedules"]], []
        for index in range(len(file["chains"])):
            schedules = {}
            for name in names:
                stored = file[f"schedules/{name}/{index}"]
                levels = int(stored.attrs["levels"]) if "levels" in stored.attrs else None
                vjps = tuple(json_attribute(stored, "vjps")) if "vjps" in stored.attrs else ()
                schedules[name] = Schedule(name, int(stored.attrs["n"]), stored[()], levels, vjps)
            group = file[f"chains/{index}"]
            matrices = [[item[field] for field in MATRIX] for item in read_json(group, "matrices")]
            elements = []
            every = read_json(group, "names"), integers(group, "elements"), integers(group, "items")
            for name, k, item in zip(*every, strict=True):
                digest, shared, multiply_adds = matrices[k]
                elements.append(Element(name, patterns[digest], shared, multiply_adds, int(item)))
            chains.append(ChainPlan(Chain(tuple(elements)), schedules, products))
        bounds = json_attribute(file, "partition") if "partition" in file.attrs else None
        return {
            "network": read_json(file, "network"),
            "partition": None if bounds is None else Partition(tuple(bounds)),
            "fingerprint": text(file, "fingerprint"),
            "chains": tuple(chains),
            "left_out": json_attribute(file, "left_out"),
            **{name: int(file.attrs[name]) for name in NUMBERS},
        }


# ---- patterns and products, by their digests ----


def write_patterns(file: h5py.File, patterns: Iterable[Pattern]) -> None:
    """Write /patterns: each different one once."""
    folder = file.create_group("patterns")
    for pattern in sorted(set(patterns), key=attrgetter("digest")):
        group = folder.create_group(pattern.digest)
        group.attrs["rows"], group.attrs["columns"] = pattern.shape
        write_array(group, "indptr", pattern.indptr, compress=True)
        write_array(group, "indices", pattern.indices, compress=True)


def write_products(file: h5py.File, products: Iterable[Product], folder: str = "products") -> None:
    """Write a folder of products: those of equal factors once."""
    parent = file.create_group(folder)
    different = {f"{product.a.digest}_{product.b.digest}": product for product in products}
    for key, product in sorted(different.items()):
        group = parent.create_group(key)
        group.attrs["kind"] = product.kind
        group.attrs["multiply_adds"] = product.multiply_adds
        group.attrs["pattern"] = product.pattern.digest
        for name, array in product.maps.items():
            write_array(group, name, array, compress=True)


def read_patterns(file: h5py.File) -> dict[str, Pattern]:
    """The patterns of a file by digest."""
    return {
        digest: Pattern(
            (int(group.attrs["rows"]), int(group.attrs["columns"])),
            *(integers(group, name) for name in ("indptr", "indices")),
        )
        for digest, group in file["patterns"].items()
    }


def read_product(group: h5py.Group, patterns: Mapping[str, Pattern]) -> Product:
    """The product in a group, /products/<a>_<b>."""
    a, _, b = group.name.rpartition("/")[2].partition("_")
    kind = text(group, "kind")
    maps = {name: integers(group, name) for name in MAPS[kind]}
    for array in maps.values():
        array.flags.writeable = False
    c, terms = patterns[text(group, "pattern")], int(group.attrs["multiply_adds"])
    return Product(patterns[a], patterns[b], c, kind, terms, maps)


# ---- fields ----


def integers(group: h5py.Group, name: str) -> np.ndarray:
    """A data set of one axis."""
    return read_array(group, name, kinds="i", ndim=1, error=PlanError)


def text(group: h5py.Group | h5py.Dataset, name: str) -> str:
    """An attribute."""
    return attribute(group, name, str, PlanError)


def json_attribute(group: h5py.Group | h5py.Dataset, name: str) -> Any:
    """Return the value of an attribute that holds JSON."""
    return json.loads(text(group, name))


def write_json(group: h5py.Group, name: str, value: Any) -> None:
    """Store a long JSON text as a compressed data set of its bytes."""
    write_array(group, name, np.frombuffer(json.dumps(value).encode(), np.uint8), compress=True)


def read_json(group: h5py.Group, name: str) -> Any:
    """Return the value of the JSON in data set `name`, a text in UTF-8."""
    return json.loads(read_array(group, name, kinds="u", ndim=1, error=PlanError).tobytes())
