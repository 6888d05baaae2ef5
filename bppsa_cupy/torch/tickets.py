"""Passes kept by tensors: what autograd saves, hands on and frees, is a pass of the engine."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

from bppsa_cupy.errors import PassError
from bppsa_cupy.functional import Saved

_numbers = itertools.count(1)
_passes: dict[int, Saved] = {}


class _Ticket(np.ndarray[Any, Any]):
    """An array of one integer, the number of a pass, which ends with it."""

    number = 0

    def __del__(self) -> None:
        _passes.pop(self.number, None)


def ticket_of(saved: Saved | None) -> torch.Tensor:
    """A tensor (1,) int64 on the CPU whose memory keeps a pass alive; of no pass it is 0.

    So the pass is freed when autograd frees what it saved: behind the way back, or where a checkpoint does.
    """
    if saved is None:
        return torch.zeros(1, dtype=torch.int64)
    ticket = _Ticket(1, np.int64)
    number = ticket[0] = ticket.number = next(_numbers)
    _passes[number] = saved
    return torch.from_numpy(ticket)


def pass_of(ticket: torch.Tensor) -> Saved:
    """The pass that a ticket keeps. Raises PassError for a copy that has outlived it."""
    saved = _passes.get(int(ticket))
    if saved is None:
        raise PassError(
            "a recurrent pass is gone: a hook for saved tensors (torch.autograd.graph.saved_tensors_hooks) "
            "kept a copy of what refers to it; leave the module out of that hook, or take "
            "torch.utils.checkpoint"
        )
    return saved
