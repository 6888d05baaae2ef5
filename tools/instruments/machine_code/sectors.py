"""The 32-byte sectors of global memory that a warp's loads and stores take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bppsa_cupy.tools.instruments.machine_code.flow import Access
from bppsa_cupy.tools.instruments.machine_code.instructions import Instruction

SECTOR = 32


class Traffic(NamedTuple):
    """Global loads and stores of a warp.

    loads, stores  instructions
    bytes          that the lanes take part in ask for
    sectors        that these lie in, at least; None where lanes' addresses are not known
    """

    loads: int
    stores: int
    bytes: int
    sectors: int | None


def traffic(found: Iterable[tuple[Instruction, Access]]) -> Traffic:
    """The sum over accesses."""
    loads = stores = moved = 0
    sectors: int | None = 0
    for instruction, access in found:
        loads += instruction.name != "STG"
        stores += instruction.name == "STG"
        moved += instruction.width * int(access.active.sum())
        one = sectors_of(instruction.width, access)
        sectors = None if one is None or sectors is None else sectors + one
    return Traffic(loads, stores, moved, sectors)


def sectors_of(width: int, access: Access) -> int | None:
    """The sectors of one access, where the first lane that takes part starts one."""
    if not access.active.any():
        return 0
    if access.address is None:
        return None
    lanes = access.address.lanes[access.active]
    apart = (lanes - lanes[0]).view(np.int32).astype(np.int64)
    apart -= apart.min()
    places = apart[:, None] + np.arange(0, width, min(width, 4))
    return len(np.unique(places // SECTOR))
