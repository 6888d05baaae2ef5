"""Groups of parameters that an optimizer updates with settings of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_list
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.network.layout import ALIGNMENT
from bppsa_cupy.network.parameters import ParameterSet

#: One group: its parameters' names under "params", and the hyper-parameters that differ from the optimizer's.
Group = dict[str, Any]

#: A group's number is a byte, and 0 is of the parameters in no group.
MOST = 255


def read_groups(
    parameters: ParameterSet, groups: Sequence[Mapping[str, Any]], known: Sequence[str]
) -> list[Group]:
    """`groups` with "params" as lists of whole names in the parameters' order, values as JSON holds them.

    "params" is one place, or several: a parameter's name ("4.weight"), or a layer's ("4", or 4), which means
    all its parameters. Of a dict the keys count, so that a part of `net.parameters` serves as well.
    known  the hyper-parameters that a group may give

    Raises BppsaError naming the group for a place that does not exist or is in two groups, and for an unknown
    hyper-parameter.
    """
    groups = as_list("an optimizer", "groups", groups, "a list of dicts with 'params'", error=BppsaError)
    if len(groups) > MOST:
        raise BppsaError(f"{len(groups)} groups of parameters were given: at most {MOST} are taken")
    known_names = list(parameters if parameters.ranks is None else parameters.ranks.names)
    owner: dict[str, int] = {}
    result = []
    for index, group in enumerate(groups):
        if not isinstance(group, Mapping) or "params" not in group:
            raise BppsaError(f"group {index} is {group!r}: it must be a dict with 'params', as PyTorch's are")
        settings = {name: value for name, value in group.items() if name != "params"}
        for name in settings:
            if name not in known:
                raise BppsaError(f"group {index} gives {name!r}: the optimizer has {', '.join(known)}")
        places = _places(group["params"], index)
        taken = {name for place in places for name in _names(known_names, place, index)}
        for name in known_names:
            if name in taken and owner.setdefault(name, index) != index:
                raise BppsaError(f"{name} is in groups {owner[name]} and {index}: put it in one of them")
        in_order = [name for name in known_names if name in taken]
        result.append({"params": in_order, **{name: _plain(value) for name, value in settings.items()}})
    return result


def group_of_units(parameters: ParameterSet, groups: Sequence[Group]) -> tuple[np.ndarray, int]:
    """The group of each unit of `flat`, uint8: 0 without a group, k + 1 in groups[k]; and the number of
    values per unit. Arrays begin at whole units, so that a unit is in one group."""
    unit = ALIGNMENT // parameters.dtype.itemsize
    numbers = np.zeros(parameters.layout.size, np.uint8)
    for number, group in enumerate(groups, 1):
        for name in group["params"]:
            if name in parameters:
                parameters.layout.view(numbers, name)[...] = number
    return np.ascontiguousarray(numbers[::unit]), unit


def _places(params: Any, index: int) -> list[str]:
    """The names of "params", in a list; a layer's index is one."""
    owner, takes = f"group {index}", "a name, or a list of them, of parameters or layers"
    alone = isinstance(params, (str, int))
    return [
        place if isinstance(place, str) else str(as_integer(owner, "params", place, 0, error=BppsaError))
        for place in ([params] if alone else as_list(owner, "params", params, takes, error=BppsaError))
    ]


def _names(known: Sequence[str], place: str, index: int) -> list[str]:
    found = [name for name in known if name == place or name.startswith(f"{place}.")]
    if not found:
        raise BppsaError(
            f"group {index} has the parameters {place!r}: the network has {', '.join(known) or 'none'}"
        )
    return found


def _plain(value: Any) -> Any:
    """`value` as JSON holds it, where it is a number of NumPy or several; the optimizer checks what it is."""
    if isinstance(value, (tuple, list)):
        return [one.item() if isinstance(one, np.generic) else one for one in value]
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value
