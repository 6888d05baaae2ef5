"""Ranks: processes that MPI starts, each with a device, and messages between them."""

from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.guard import guard
from bppsa_cupy.distributed.launch import launched_size
from bppsa_cupy.distributed.waiting import Handle

__all__ = ["Group", "Handle", "guard", "launched_size"]
