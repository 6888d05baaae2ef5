"""Ranks: processes that MPI starts, each with a device, and networks that lie on several of them."""

from bppsa_cupy.distributed.batch_network import BatchSequential, accumulate
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.guard import guard, launched_size
from bppsa_cupy.distributed.network import RankSequential, distribute
from bppsa_cupy.distributed.time_network import TimeSequential
