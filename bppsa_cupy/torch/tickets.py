"""Passes kept by tensors: what autograd saves, hands on and frees, is a pass of the engine."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
import torch

from bppsa_cupy.errors import PassError
from bppsa_cupy.functional import Saved

_numbers = itertools.count(1)
_passes: weakref.WeakValueDictionary[int, Saved] = weakref.WeakValueDictionary()


class _Ticket(np.ndarray[Any, Any]):
    """An array of one integer that refers to a pass."""

    saved: Saved


def ticket_of(saved: Saved | None) -> torch.Tensor:
    """A tensor (1,) int64 on the CPU whose memory keeps a pass alive; of no pass it is 0.

    So the pass is freed when autograd frees what it saved: behind the way back, or where a checkpoint does.
    """
    array = np.zeros(1, np.int64)
    if saved is None:
        return torch.from_numpy(array)
    ticket = array.view(_Ticket)
    ticket.saved, ticket[0] = saved, next(_numbers)
    _passes[int(ticket[0])] = saved
    return torch.from_numpy(ticket)


def pass_of(ticket: torch.Tensor) -> Saved:
    """The pass that a ticket keeps. Raises PassError for a copy that has outlived it."""
    saved = _passes.get(int(ticket))
    if saved is None:
        raise PassError(
            "a recurrent pass is gone: a hook for saved tensors has copied what refers to it, as "
            "torch.autograd.graph.save_on_cpu does; leave the module out of that hook, or take "
            "torch.utils.checkpoint"
        )
    return saved
