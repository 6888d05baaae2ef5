"""Whether an optimizer can go on from a state, which may be another one's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_plain_array
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import CheckpointError


def check_kind(own: str, hyperparameters: Sequence[str], state: Any) -> None:
    """Raise CheckpointError unless `state` is one of the optimizer called `own`, with these
    hyper-parameters."""
    kinds = {"name": str, "hyperparameters": Mapping, "steps": object, "arrays": Mapping}
    given = state if isinstance(state, Mapping) else {}
    missing = [name for name in kinds if name not in given]
    if missing := missing or [n for n, kind in kinds.items() if not isinstance(given[n], kind)]:
        raise CheckpointError(
            f"the checkpoint lacks its optimizer's {', '.join(missing)}: give one that training wrote"
        )
    as_integer("the checkpoint", "steps", state["steps"], 0, error=CheckpointError)
    if state["name"] != own:
        raise CheckpointError(
            f"the checkpoint's optimizer is {state['name']}, this one is {own}: make a {state['name']}"
        )
    if set(state["hyperparameters"]) != set(hyperparameters):
        raise CheckpointError(
            f"the checkpoint's {own} has {', '.join(map(str, state['hyperparameters']))}, this one has "
            f"{', '.join(hyperparameters)}: give a checkpoint that this version wrote"
        )


def check_arrays(
    own: str,
    arrays: Mapping[str, Array],
    given: Mapping[str, Any],
    differing: Mapping[str, tuple[Any, Any]],
    part: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Raise CheckpointError unless the arrays that are given have names and shapes of the optimizer's.

    differing  the hyper-parameters that are others, by name: the state's and the optimizer's
    part       of an array, what this process holds
    """
    if set(given) != set(arrays):
        raise CheckpointError(
            f"the checkpoint's {own} keeps {', '.join(map(str, given)) or 'no array'}, this "
            f"one {', '.join(arrays) or 'no array'}: "
            + "; ".join(f"give {name} {theirs}, not {ours}" for name, (theirs, ours) in differing.items())
        )
    for name, value in given.items():
        array = as_plain_array("the checkpoint", name, value, error=CheckpointError)
        if part(array).shape != arrays[name].shape or array.dtype.kind == "c":
            raise CheckpointError(
                f"the checkpoint's {name} holds {array.dtype} of shape {array.shape}, the network "
                f"{arrays[name].dtype} of shape {arrays[name].shape}"
            )
