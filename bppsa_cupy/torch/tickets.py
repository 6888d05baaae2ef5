"""Passes kept by tensors: what autograd saves, hands on and frees, is a pass of the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bppsa_cupy.functional import Saved

#: By the address of the memory of the ticket that keeps it.
_passes: dict[int, Saved] = {}


class _Ticket(np.ndarray[Any, Any]):
    """An array of one integer, whose address stands for a pass, which ends with it."""

    address = 0

    def __del__(self) -> None:
        _passes.pop(self.address, None)


def ticket_of(saved: Saved | None) -> torch.Tensor:
    """A tensor (1,) int64 on the CPU whose memory keeps a pass alive; or no pass.

    So the pass is freed when autograd frees what it saved: after the way back, or where a checkpoint does.
    """
    if saved is None:
        return torch.zeros(1, dtype=torch.int64)
    memory = _Ticket(1, np.int64)
    ticket = torch.from_numpy(memory)
    address = memory.address = ticket.data_ptr()
    _passes[address] = saved
    return ticket


def pass_of(ticket: torch.Tensor) -> Saved | None:
    """The pass that a ticket keeps; None for a copy of one."""
    return _passes.get(ticket.data_ptr())
