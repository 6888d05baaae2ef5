"""Chains and schedules of a plan file: what repeats from element to element is stored once."""

from __future__ import annotations

import json
from collections.abc import Mapping

import h5py
import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.file.check_schedule import check_schedule
from bppsa_cupy.plan.file.fields import integers, json_attribute, naming, number, read_json, write_json
from bppsa_cupy.plan.schedule import Schedule
from bppsa_cupy.system.hdf5 import read_array, write_array


def write_chain(group: h5py.Group, chain: Chain) -> None:
    """Write a chain into its group: each different matrix once, and for each element which one it is."""
    kinds = [element.matrix for element in chain.elements]
    positions = {kind: position for position, kind in enumerate(dict.fromkeys(kinds))}
    names = ("pattern", "shared", "vjp_multiply_adds")
    write_json(group, "matrices", [dict(zip(names, kind, strict=True)) for kind in positions])
    write_array(group, "elements", np.array([positions[k] for k in kinds], np.int32), compress=True)
    write_json(group, "names", [element.name for element in chain.elements])
    write_array(group, "items", np.array([e.item for e in chain.elements], np.int32), compress=True)


def read_chain(group: h5py.Group, patterns: Mapping[str, Pattern]) -> Chain:
    """The chain in a group. Raises PlanError naming what is broken."""
    with naming(group.file.filename, f"chain {group.name.rpartition('/')[2]}"):
        matrices = []
        for k, item in enumerate(read_json(group, "matrices", list)):
            kinds = [type(item.get(name)) for name in ("pattern", "shared")] if isinstance(item, dict) else []
            if kinds != [str, bool]:
                raise PlanError(f"matrix {k} lacks a pattern or whether it is shared")
            if item["pattern"] not in patterns:
                raise PlanError(f"pattern {item['pattern'][:12]} of matrix {k} is missing")
            terms = item.get("vjp_multiply_adds")
            if terms is not None and (type(terms) is not int or terms < 0):
                raise PlanError(f"matrix {k} has {terms!r} VJP multiply-adds: it takes an integer from 0 on")
            matrices.append((patterns[item["pattern"]], item["shared"], terms))
        elements, names = integers(group, "elements"), read_json(group, "names", list)
        if len(names) != elements.size or not all(isinstance(name, str) for name in names):
            raise PlanError(f"{elements.size} elements have {len(names)} names: each takes one, a text")
        if elements.min(initial=0) < 0 or elements.max(initial=-1) >= len(matrices):
            raise PlanError(
                f"elements are matrices {elements.min()} to {elements.max()}: there are 0 to "
                f"{len(matrices) - 1}"
            )
        # Plans of before there were ranks have no items.
        items = integers(group, "items") if "items" in group else np.zeros_like(elements)
        if items.size != elements.size or items.min(initial=0) < 0:
            raise PlanError(
                f"{elements.size} elements have items {items.tolist()}: each takes one, from 0 on"
            )
        every = zip(names, (matrices[k] for k in elements.tolist()), items.tolist(), strict=True)
        return Chain(tuple(Element(name, m[0], m[1], m[2], item) for name, m, item in every))


def write_schedule(group: h5py.Group, name: str, schedule: Schedule) -> None:
    """Write a schedule as data set `name`."""
    table = schedule.table.astype(index_dtype(schedule.table.max(initial=0)))
    stored = write_array(group, name, table, compress=True)
    stored.attrs["n"] = schedule.n
    if schedule.levels is not None:
        stored.attrs["levels"] = schedule.levels
    if schedule.vjps:
        stored.attrs["vjps"] = json.dumps(schedule.vjps)


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
                raise PlanError(f"VJPs cross {list(vjps)}: each is an element, an integer from 1 on")
            schedule = Schedule(name, number(stored, "n"), table, levels, vjps)
            check_schedule(schedule)
            schedules.append(schedule)
    return schedules
