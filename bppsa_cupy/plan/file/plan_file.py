"""The plan file: HDF5, sealed, everything checked when it is read.

/                       format = "bppsa-plan", format_version, fingerprint, batch_size, workers, itemsize,
                        left_out (JSON); of a plan over ranks partition (JSON), its bounds
/network                JSON
/patterns, /products    `products.py` has them
/chains/<i>             matrices (JSON): pattern (a digest), shared and vjp_multiply_adds (an integer or
                        null) of each different one; elements (n,): which of them a_1, …, a_n are; names
                        (JSON) and items (n,) of a_1, …, a_n
/schedules/<name>/<i>   (steps, 6) of level, begin, split, end, kind (0 mv, 1 mm), worker; n, and
                        levels where the schedule has them
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import h5py

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.chain_plan import ChainPlan
from bppsa_cupy.plan.file.chains import read_chain, read_schedules, write_chain, write_schedule
from bppsa_cupy.plan.file.fields import (
    check_format,
    json_attribute,
    members,
    naming,
    number,
    numbered,
    read_json,
    text,
    write_format,
    write_json,
)
from bppsa_cupy.plan.file.outline import read_pattern_outlines, read_product_outline
from bppsa_cupy.plan.file.products import read_patterns, read_product, write_patterns, write_products
from bppsa_cupy.plan.partition import Partition, place
from bppsa_cupy.plan.product import Product
from bppsa_cupy.plan.schedule import SCHEDULES, Schedule
from bppsa_cupy.system.hdf5 import create, open_file

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


# ---- reading ----


def read_plan(path: str | os.PathLike[str], *, verify: bool = True) -> dict[str, Any]:
    """The fields of a Plan that `write_plan` wrote, by name.

    verify   compare the SHA-256 of the file first; everything else is checked in any case

    Raises PlanError naming what is broken: a damaged, truncated or foreign file, another version, a
    pattern that is not its digest's, a map out of range, an illegal step.
    """
    with open_file(path, verify=verify, error=PlanError) as file:
        return _read(file, read_patterns, read_product)


def read_outline(path: str | os.PathLike[str], *, verify: bool = True) -> dict[str, Any]:
    """The fields of a Plan by name, patterns and products by their sizes alone: `Plan.outline`."""
    with open_file(path, verify=verify, error=PlanError) as file:
        return _read(file, read_pattern_outlines, read_product_outline)


def _read(
    file: h5py.File,
    read_patterns: Callable[[list[tuple[str, h5py.Group]]], dict[str, Any]],
    read_product: Callable[[h5py.Group, dict[str, Any]], Any],
) -> dict[str, Any]:
    check_format(file, FORMAT, FORMAT_VERSION, "a plan", "build it again")
    patterns = read_patterns(members(file, "patterns"))
    made = [read_product(group, patterns) for _, group in members(file, "products")]
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
