"""The plan file: HDF5, sealed, everything checked when it is read.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import h5py
import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.errors import BppsaError, PlanError, reason_of
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.chain_plan import ChainPlan
from bppsa_cupy.plan.partition import Partition, place
from bppsa_cupy.plan.product import MAPS, Product, check_product
from bppsa_cupy.plan.schedule import KINDS, SCHEDULES, Schedule
from bppsa_cupy.system.hdf5 import attribute, create, open_file, read_array, write_array

FORMAT = "bppsa-plan"
FORMAT_VERSION = 3
NUMBERS = ("batch_size", "workers", "itemsize")


# ---- writing ----


def write_plan(path: str | os.PathLike[str], plan: Mapping[str, Any]) -> None:
    """Write a plan, whole or not at all. Raises PlanError where the file cannot be written.

    plan  the fields of a Plan by name
    """
    chains: tuple[ChainPlan, ...] = plan["chains"]
    products = [product for chain in chains for product in chain.products.values()]
    patterns = [element.pattern for chain in chains for element in chain.chain.elements]
    patterns += [product.pattern for product in products]
    with create(path, error=PlanError) as file:
        write_format(file, FORMAT, FORMAT_VERSION)
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
            write_chain(folder.create_group(str(index)), chain.chain)
        folder = file.create_group("schedules")
        for name in chains[0].schedules if chains else ():
            group = folder.create_group(name)
            for index, chain in enumerate(chains):
                write_schedule(group, str(index), chain.schedules[name])


def write_chain(group: h5py.Group, chain: Chain) -> None:
    """Write a chain into its group: each different matrix once, and for each element which one it is."""
    kinds = [element.matrix for element in chain.elements]
    positions = {kind: position for position, kind in enumerate(dict.fromkeys(kinds))}
    names = ("pattern", "shared", "vjp_multiply_adds")
    write_json(group, "matrices", [dict(zip(names, kind, strict=True)) for kind in positions])
    write_array(group, "elements", np.array([positions[k] for k in kinds], np.int32), compress=True)
    write_json(group, "names", [element.name for element in chain.elements])
    write_array(group, "items", np.array([e.item for e in chain.elements], np.int32), compress=True)


def write_schedule(group: h5py.Group, name: str, schedule: Schedule) -> None:
    """Write a schedule as data set `name`."""
    table = schedule.table.astype(index_dtype(schedule.table.max(initial=0)))
    stored = write_array(group, name, table, compress=True)
    stored.attrs["n"] = schedule.n
    if schedule.levels is not None:
        stored.attrs["levels"] = schedule.levels
    if schedule.vjps:
        stored.attrs["vjps"] = json.dumps(schedule.vjps)


# ---- reading ----


def read_plan(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of a Plan that `write_plan` wrote, by name.

    Raises PlanError naming what is broken: a damaged, truncated or foreign file, another version, a
    pattern that is not its digest's, a map out of range, an illegal step.
    """
    with open_file(path, verify=True, error=PlanError) as file:
        check_format(file, FORMAT, FORMAT_VERSION, "a plan", "build it again")
        patterns = read_patterns(file)
        made = [read_product(group, patterns) for _, group in members(file, "products")]
        if any(product.kind == "masked" for product in made):
            raise PlanError(f"{file.filename}: a network's plan has no 'masked' product: build it again")
        products = {(product.a.digest, product.b.digest): product for product in made}
        chains = [read_chain(group, patterns) for group in numbered(file, "chains")]
        schedules = {name: read_schedules(group, name) for name, group in members(file, "schedules")}
        planned = _planned_chains(file.filename, chains, schedules, products)
        numbers = {name: number(file, name) for name in NUMBERS}
        if min(numbers.values()) < 1:
            raise PlanError(f"{file.filename}: {numbers}: all must be at least 1")
        network = read_json(file, "network", dict)
        return {
            "network": network,
            "partition": _read_partition(file, network, planned, numbers["workers"]),
            "fingerprint": text(file, "fingerprint"),
            "chains": planned,
            "left_out": json_attribute(file, "left_out", dict),
            **numbers,
        }


def read_chain(group: h5py.Group, patterns: Mapping[str, Pattern]) -> Chain:
    """The chain in a group. Raises PlanError naming what is broken."""
    with naming(group.file.filename, f"chain {group.name.rpartition('/')[2]}"):
        matrices = [
            (patterns[item["pattern"]], bool(item["shared"]), item["vjp_multiply_adds"])
            for item in read_json(group, "matrices", list)
        ]
        elements, items = integers(group, "elements"), integers(group, "items")
        every = zip(read_json(group, "names", list), elements.tolist(), items.tolist(), strict=True)
        return Chain(tuple(Element(name, *matrices[int(k)], item) for name, k, item in every))


def read_schedules(group: h5py.Group, name: str) -> list[Schedule]:
    """The schedule called `name` of each chain. Raises PlanError naming what is broken."""
    schedules = []
    for index in range(len(group)):
        with naming(group.file.filename, f"schedule {name} of chain {index}"):
            table = read_array(group, str(index), kinds="i", ndim=2, error=PlanError)
            if table.shape[1] != 6:
                raise PlanError("a step is six integers")
            stored = group[str(index)]
            levels = number(stored, "levels") if "levels" in stored.attrs else None
            vjps = tuple(json_attribute(stored, "vjps", list)) if "vjps" in stored.attrs else ()
            if not all(type(k) is int and 1 <= k < 2**31 for k in vjps):
                raise PlanError(
                    f"vjps holds {list(vjps)}, which are not all element numbers from 1: build the plan again"
                )
            schedule = Schedule(name, number(stored, "n"), table, levels, vjps)
            check_schedule(schedule)
            schedules.append(schedule)
    return schedules


def check_schedule(schedule: Schedule) -> None:
    """Raise PlanError, naming the step, where a law of `Schedule` is broken (dead products are allowed)."""
    n, makers = schedule.n, schedule.makers
    level, begin, split, end, kind, worker = schedule.table.T
    if not np.isin(kind, range(len(KINDS))).all():
        raise PlanError(f"schedule {schedule.name}: the kind of a step, its fifth number, is 0 or 1")
    position = np.arange(level.size)
    twice = np.ones(level.size, bool)
    twice[np.unique(schedule.out, axis=0, return_index=True)[1]] = False
    is_input = np.stack([split - begin, end - split], 1) == 1
    is_there = (makers < position[:, None]) & (level[makers] < level[:, None]) if level.size else is_input
    faults = {
        f"its segment does not belong to a scan over a_0, …, a_{n}": ~(
            (0 <= begin) & (begin < split) & (split < end) & (end <= n + 1)
        ),
        "its kind does not fit its segment": kind != (begin != 0),
        "levels must not decrease, nor workers be negative": (np.diff(level, prepend=0) < 0) | (worker < 0),
        "its segment is there already": twice,
        "an operand is not there before its level": ~np.where(makers < 0, is_input, is_there).all(1),
    }
    crossed = np.array(schedule.vjps, np.int64)
    if crossed.size and not (1 <= crossed[0] and crossed[-1] <= n and (np.diff(crossed) > 0).all()):
        raise PlanError(
            f"schedule {schedule.name} crosses {list(schedule.vjps)} by VJPs: of a_1, …, a_{n}, rising"
        )
    reads_crossed = is_input & np.isin(np.stack([begin, split], 1), crossed)
    faults["it multiplies what is crossed by a VJP"] = (kind != 0) & reads_crossed.any(1)
    broken = np.array(list(faults.values()))
    if broken.any():
        first = int(broken.any(0).argmax())
        fault = list(faults)[int(broken[:, first].argmax())]
        raise PlanError(f"schedule {schedule.name}: {schedule.step(first)} is not legal: {fault}")
    made = np.unique(end[begin == 0])
    gaps = np.flatnonzero(made != np.arange(2, made.size + 2))
    missing = int(gaps[0] if gaps.size else made.size) + 2
    if missing <= n:
        raise PlanError(f"schedule {schedule.name} does not compute v({missing})")


def _read_partition(
    file: h5py.File, network: Mapping[str, Any], planned: Sequence[ChainPlan], ranks: int
) -> Partition | None:
    """The partition of a plan over ranks, whose steps must be where it puts them."""
    if "partition" not in file.attrs:
        return None
    with naming(file.filename, "partition"):
        partition = Partition(tuple(json_attribute(file, "partition", list)))
        partition.check(len(network.get("layers", ())), ranks, "layers")
        for chain in planned:
            for schedule in chain.schedules.values():
                if max((element.item for element in chain.chain.elements), default=-1) >= partition.items:
                    raise PlanError(f"an element is of none of the {partition.items} layers")
                if place(schedule, chain.chain.owners(partition), ranks).schedule != schedule:
                    raise PlanError(f"schedule {schedule.name} has steps that are not on their owner's rank")
    return partition


def _planned_chains(
    path: str,
    chains: list[Chain],
    schedules: dict[str, list[Schedule]],
    products: dict[tuple[str, str], Product],
) -> tuple[ChainPlan, ...]:
    known = [name for name in SCHEDULES if name in schedules]
    if len(known) < len(schedules):
        raise PlanError(f"{path}: schedules {sorted(schedules)}: there are {', '.join(SCHEDULES)}")
    for name in known:
        if len(schedules[name]) != len(chains):
            raise PlanError(
                f"{path}: schedule {name} is for {len(schedules[name])} chains, there are {len(chains)}"
            )
    planned = []
    for index, chain in enumerate(chains):
        with naming(path, f"chain {index}"):
            planned.append(ChainPlan(chain, {name: schedules[name][index] for name in known}, products))
    return tuple(planned)


# ---- patterns and products, by their digests ----


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


# ---- fields, each checked as it is read ----


@contextmanager
def naming(path: str, what: str) -> Iterator[None]:
    """Put the file's name, and of what is read, before the message of an error inside."""
    try:
        yield
    except BppsaError as error:
        raise PlanError(f"{path}: {what}: {error}") from error


def write_format(file: h5py.File, format: str, version: int) -> None:
    """Say what a file is: attributes `format` and `format_version` of its root."""
    file.attrs["format"], file.attrs["format_version"] = format, version


def check_format(file: h5py.File, format: str, version: int, what: str, cure: str) -> None:
    """Raise PlanError unless the file holds `what`, by its format and version, as this package reads it."""
    kind, found = text(file, "format"), number(file, "format_version")
    if kind != format:
        raise PlanError(f"{file.filename} holds {kind!r}: {what} is {format!r}")
    if found != version:
        raise PlanError(
            f"{file.filename} is {what} of version {found}, this package reads version {version}: {cure}"
        )


def members(file: h5py.File, name: str) -> list[tuple[str, h5py.Group]]:
    """The groups in group `name`, which holds nothing else."""
    folder = file.get(name)
    if not isinstance(folder, h5py.Group) or not all(isinstance(g, h5py.Group) for g in folder.values()):
        raise PlanError(f"{file.filename}: group /{name} is missing, or holds something else than groups")
    return list(folder.items())


def numbered(file: h5py.File, name: str) -> list[h5py.Group]:
    """The groups in group `name`, which are called 0, 1, …"""
    groups = dict(members(file, name))
    if set(groups) != {str(index) for index in range(len(groups))}:
        raise PlanError(f"{file.filename}: /{name} holds {sorted(groups)}: they must be numbered from 0")
    return [groups[str(index)] for index in range(len(groups))]


def integers(group: h5py.Group, name: str) -> np.ndarray:
    """A data set of one axis."""
    return read_array(group, name, kinds="i", ndim=1, error=PlanError)


def text(group: h5py.Group, name: str) -> str:
    """An attribute."""
    return attribute(group, name, str, PlanError)


def number(group: h5py.Group | h5py.Dataset, name: str) -> int:
    """An attribute."""
    return attribute(group, name, int, PlanError)


def json_attribute(group: h5py.Group, name: str, kind: type) -> Any:
    """Return the JSON list or dict of an attribute."""
    return _parsed(text(group, name), f"{group.file.filename}: attribute {name}", kind)


def write_json(group: h5py.Group, name: str, value: Any) -> None:
    """Store a long JSON text as a compressed data set of its bytes."""
    write_array(group, name, np.frombuffer(json.dumps(value).encode(), np.uint8), compress=True)


def read_json(group: h5py.Group, name: str, kind: type) -> Any:
    """Return the JSON list or dict in data set `name`, a text in UTF-8."""
    stored = read_array(group, name, kinds="u", ndim=1, error=PlanError)
    return _parsed(stored.tobytes(), f"{group.file.filename}: {group.name.rstrip('/')}/{name}", kind)


def _parsed(content: str | bytes, where: str, kind: type) -> Any:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise PlanError(f"{where} is not valid JSON: {reason_of(error)}") from error
    if not isinstance(value, kind):
        raise PlanError(f"{where} is not a JSON {kind.__name__}")
    return value
