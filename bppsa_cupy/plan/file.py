"""The plan file: HDF5, sealed, everything checked when it is read.

/                       format = "bppsa-plan", format_version, fingerprint, network (JSON),
                        batch_size, workers, itemsize, left_out (JSON)
/patterns/<digest>      rows, columns; indptr, indices
/products/<a>_<b>       kind, multiply_adds, pattern (a digest); the maps of its kind
/chains/<i>             elements (JSON): name, pattern (a digest), shared and vjp_multiply_adds (an integer
                        or null) of a_1, …, a_n
/schedules/<name>/<i>   (steps, 6) of level, begin, split, end, kind (0 mv, 1 mm), worker; n, and
                        levels where the schedule has them
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import h5py
import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import BppsaError, PlanError
from bppsa_cupy.hdf5 import attribute, create, open_file, read_array, write_array
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.chain_plan import ChainPlan
from bppsa_cupy.plan.check import check_product
from bppsa_cupy.plan.outline import read_pattern_outlines, read_product_outline
from bppsa_cupy.plan.plan import SCHEDULES, Plan
from bppsa_cupy.plan.schedule import Schedule, Step, check_schedule
from bppsa_cupy.plan.symbolic import MAPS, Product

FORMAT = "bppsa-plan"
FORMAT_VERSION = 2

KINDS = ("mv", "mm")


# ---- writing ----


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write `plan` to `path`, whole or not at all. Raises PlanError where the file cannot be written."""
    products = {key: product for chain in plan.chains for key, product in chain.products.items()}
    patterns = {element.pattern for chain in plan.chains for element in chain.chain.elements}
    patterns.update(product.pattern for product in products.values())
    with create(path, sealed=True, error=PlanError) as file:
        file.attrs["format"] = FORMAT
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["fingerprint"] = plan.fingerprint
        file.attrs["network"] = json.dumps(plan.network)
        for name in ("batch_size", "workers", "itemsize"):
            file.attrs[name] = getattr(plan, name)
        file.attrs["left_out"] = json.dumps(dict(plan.left_out))
        folder = file.create_group("patterns")
        for pattern in sorted(patterns, key=lambda pattern: pattern.digest):
            _write_pattern(folder.create_group(pattern.digest), pattern)
        folder = file.create_group("products")
        for (a, b), product in sorted(products.items()):
            _write_product(folder.create_group(f"{a}_{b}"), product)
        folder = file.create_group("chains")
        for index, chain in enumerate(plan.chains):
            folder.create_group(str(index)).attrs["elements"] = json.dumps(
                [
                    {
                        "name": element.name,
                        "pattern": element.pattern.digest,
                        "shared": element.shared,
                        "vjp_multiply_adds": element.vjp_multiply_adds,
                    }
                    for element in chain.chain.elements
                ]
            )
        folder = file.create_group("schedules")
        for name in plan.schedules:
            group = folder.create_group(name)
            for index, chain in enumerate(plan.chains):
                _write_schedule(group, str(index), chain.schedules[name])


def _write_pattern(group: h5py.Group, pattern: Pattern) -> None:
    group.attrs["rows"], group.attrs["columns"] = pattern.shape
    write_array(group, "indptr", pattern.indptr, compress=True)
    write_array(group, "indices", pattern.indices, compress=True)


def _write_product(group: h5py.Group, product: Product) -> None:
    group.attrs["kind"] = product.kind
    group.attrs["multiply_adds"] = product.multiply_adds
    group.attrs["pattern"] = product.pattern.digest
    for name, array in product.maps.items():
        write_array(group, name, array, compress=True)


def _write_schedule(group: h5py.Group, name: str, schedule: Schedule) -> None:
    rows = [(s.level, s.begin, s.split, s.end, KINDS.index(s.kind), s.worker) for s in schedule.steps]
    stored = write_array(group, name, np.array(rows, np.int64).reshape(-1, 6))
    stored.attrs["n"] = schedule.n
    if schedule.levels is not None:
        stored.attrs["levels"] = schedule.levels


# ---- reading ----


def load_plan(path: str | os.PathLike[str], *, verify: bool = True) -> Plan:
    """Read a plan that `save_plan` wrote.

    verify  compare the SHA-256 of the file first; everything else is checked in any case

    Raises PlanError naming what is broken: a damaged, truncated or foreign file, another version, a
    pattern that is not its digest's, a map out of range, an illegal step.
    """
    return _load(path, verify, _read_patterns, _read_product)


def load_outline(path: str | os.PathLike[str], *, verify: bool = True) -> Plan:
    """Read a plan without its arrays, patterns and products by their sizes: to show what it holds, at once.

    The SHA-256, where `verify` asks for it, takes every byte. Raises PlanError as `load_plan` does, but for
    what the arrays alone tell.
    """
    return _load(path, verify, read_pattern_outlines, read_product_outline)


def _load(
    path: str | os.PathLike[str],
    verify: bool,
    read_patterns: Callable[[list[tuple[str, h5py.Group]]], dict[str, Any]],
    read_product: Callable[[h5py.Group, dict[str, Any]], tuple[tuple[str, str], Any]],
) -> Plan:
    with open_file(path, sealed=True, verify=verify, error=PlanError) as file:
        kind, version = _text(file, "format"), _number(file, "format_version")
        if kind != FORMAT:
            raise PlanError(f"{path} holds {kind!r}: a plan is {FORMAT!r}")
        if version != FORMAT_VERSION:
            raise PlanError(
                f"{path} is a plan of version {version}, this package reads version {FORMAT_VERSION}: "
                "build it again"
            )
        patterns = read_patterns(_members(file, "patterns"))
        products = dict(read_product(group, patterns) for _, group in _members(file, "products"))
        chains = [_read_chain(group, patterns) for group in _numbered(file, "chains")]
        schedules = {name: _read_schedules(group, name) for name, group in _members(file, "schedules")}
        return _make_plan(file, chains, schedules, products)


def _make_plan(
    file: h5py.File,
    chains: list[Chain],
    schedules: dict[str, list[Schedule]],
    products: dict[tuple[str, str], Product],
) -> Plan:
    known = [name for name in SCHEDULES if name in schedules]
    if len(known) < len(schedules):
        raise PlanError(f"{file.filename}: schedules {sorted(schedules)}: there are {', '.join(SCHEDULES)}")
    for name in known:
        if len(schedules[name]) != len(chains):
            raise PlanError(
                f"{file.filename}: schedule {name} is for {len(schedules[name])} chains, there are "
                f"{len(chains)}"
            )
    planned = []
    for index, chain in enumerate(chains):
        with _naming(file.filename, f"chain {index}"):
            planned.append(ChainPlan(chain, {name: schedules[name][index] for name in known}, products))
    numbers = {name: _number(file, name) for name in ("batch_size", "workers", "itemsize")}
    if min(numbers.values()) < 1:
        raise PlanError(f"{file.filename}: {numbers}: all must be at least 1")
    return Plan(
        network=_json(file, "network", dict),
        fingerprint=_text(file, "fingerprint"),
        chains=tuple(planned),
        left_out=_json(file, "left_out", dict),
        **numbers,
    )


def _read_patterns(groups: list[tuple[str, h5py.Group]]) -> dict[str, Pattern]:
    """The patterns by digest; one's digest is worked out again while the next one is read."""
    patterns, digests = {}, {}
    with ThreadPoolExecutor(1) as meanwhile:
        for name, group in groups:
            with _naming(group.file.filename, f"pattern {name[:12]}"):
                shape = _number(group, "rows"), _number(group, "columns")
                patterns[name] = Pattern(shape, _integers(group, "indptr"), _integers(group, "indices"))
            digests[name] = meanwhile.submit(attrgetter("digest"), patterns[name])
    for name, group in groups:
        if digests[name].result() != name:
            raise PlanError(f"{group.file.filename}: pattern {name[:12]}: its content has another digest")
    return patterns


def _read_product(group: h5py.Group, patterns: dict[str, Pattern]) -> tuple[tuple[str, str], Product]:
    a, _, b = group.name.rpartition("/")[2].partition("_")
    with _naming(group.file.filename, f"product {a[:12]}_{b[:12]}"):
        kind, c = _text(group, "kind"), _text(group, "pattern")
        missing = [digest for digest in (a, b, c) if digest not in patterns]
        if missing:
            raise PlanError(f"pattern {missing[0][:12]} is missing")
        if kind not in MAPS:
            raise PlanError(f"kind {kind!r} is unknown")
        maps = {name: _integers(group, name) for name in MAPS[kind]}
        for array in maps.values():
            array.flags.writeable = False
        terms = _number(group, "multiply_adds")
        product = Product(patterns[a], patterns[b], patterns[c], kind, terms, maps)
        check_product(product)
    return (a, b), product


def _read_chain(group: h5py.Group, patterns: dict[str, Pattern]) -> Chain:
    with _naming(group.file.filename, f"chain {group.name.rpartition('/')[2]}"):
        elements = []
        for k, item in enumerate(_json(group, "elements", list), 1):
            if not isinstance(item, dict) or [type(item.get(f)) for f in ("name", "pattern", "shared")] != [
                str,
                str,
                bool,
            ]:
                raise PlanError(f"element {k} lacks a name, a pattern or whether it is shared")
            if item["pattern"] not in patterns:
                raise PlanError(f"pattern {item['pattern'][:12]} of element {k} is missing")
            terms = item.get("vjp_multiply_adds")
            if terms is not None and (type(terms) is not int or terms < 0):
                raise PlanError(f"element {k} has {terms!r} VJP multiply-adds: it takes an integer from 0 on")
            elements.append(Element(item["name"], patterns[item["pattern"]], item["shared"], terms))
        return Chain(tuple(elements))


def _read_schedules(group: h5py.Group, name: str) -> list[Schedule]:
    """The schedule called `name` of each chain."""
    schedules = []
    for index in range(len(group)):
        with _naming(group.file.filename, f"schedule {name} of chain {index}"):
            rows = read_array(group, str(index), kinds="i", ndim=2, error=PlanError)
            if rows.shape[1] != 6 or not np.isin(rows[:, 4], (0, 1)).all():
                raise PlanError("a step is six integers, the fifth 0 or 1")
            steps = tuple(
                Step(level, begin, split, end, KINDS[kind], worker)
                for level, begin, split, end, kind, worker in rows.tolist()
            )
            stored = group[str(index)]
            levels = _number(stored, "levels") if "levels" in stored.attrs else None
            schedule = Schedule(name, _number(stored, "n"), steps, levels)
            check_schedule(schedule)
            schedules.append(schedule)
    return schedules


# ---- pieces of a file ----


@contextmanager
def _naming(path: str, part: str) -> Iterator[None]:
    """Put the file's and the part's name before the message of an error inside."""
    try:
        yield
    except BppsaError as error:
        raise PlanError(f"{path}: {part}: {error}") from error


def _members(file: h5py.File, name: str) -> list[tuple[str, h5py.Group]]:
    folder = file.get(name)
    if not isinstance(folder, h5py.Group) or not all(isinstance(g, h5py.Group) for g in folder.values()):
        raise PlanError(f"{file.filename}: group /{name} is missing, or holds something else than groups")
    return list(folder.items())


def _numbered(file: h5py.File, name: str) -> list[h5py.Group]:
    groups = dict(_members(file, name))
    if set(groups) != {str(index) for index in range(len(groups))}:
        raise PlanError(f"{file.filename}: /{name} holds {sorted(groups)}: they must be numbered from 0")
    return [groups[str(index)] for index in range(len(groups))]


def _integers(group: h5py.Group, name: str) -> np.ndarray:
    return read_array(group, name, kinds="i", ndim=1, error=PlanError)


def _text(group: h5py.Group, name: str) -> str:
    return attribute(group, name, str, PlanError)


def _number(group: h5py.Group | h5py.Dataset, name: str) -> int:
    return attribute(group, name, int, PlanError)


def _json(group: h5py.Group, name: str, kind: type) -> Any:
    try:
        value = json.loads(_text(group, name))
    except json.JSONDecodeError as error:
        raise PlanError(f"{group.file.filename}: attribute {name} is no JSON: {error}") from error
    if not isinstance(value, kind):
        raise PlanError(f"{group.file.filename}: attribute {name} is no JSON {kind.__name__}")
    return value
