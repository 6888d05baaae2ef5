"""Which way CUDA arrays travel, and whether every rank can take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.devices import Device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.distributed.nccl import NcclTransport
from bppsa_cupy.distributed.staged import StagedTransport
from bppsa_cupy.distributed.transport import MpiTransport, Transport
from bppsa_cupy.errors import DeviceError, DistributedError

TRANSPORTS = ("host", "gpu", "nccl")


def check_transport(transport: str) -> None:
    """Raise DistributedError where there is no such transport."""
    if not is_one_of(transport, TRANSPORTS):
        raise DistributedError(
            f"transport {transport!r} was asked for: the transports are 'host', 'gpu' and 'nccl'"
        )


def means(device: Device, transport: str, machine: str) -> dict[str, Any]:
    """What a rank has for `transport`, as JSON takes it: for `check_means`.

    gpu   for NCCL, the GPU by machine and address
    nccl  for NCCL, why it cannot be had
    """
    own = {"transport": transport, "device": device.name, "gpu": None, "nccl": None}
    if transport == "nccl" and isinstance(device, CudaDevice):
        own["gpu"] = f"{machine}, {device.gpu}"
        try:
            device.nccl()
        except DeviceError as error:
            own["nccl"] = str(error)
    return own


def check_means(ranks: Sequence[dict[str, Any]]) -> None:
    """Raise DistributedError where the ranks, by their `means`, cannot use their transport."""
    transport = ranks[0]["transport"]
    first_of: dict[str, int] = {}
    for rank, its in enumerate(ranks):
        if its["transport"] != transport:
            raise DistributedError(
                f"rank 0 takes transport={transport!r}, rank {rank} takes {its['transport']!r}: "
                "all ranks take one"
            )
        if transport != "host" and its["device"] != "cuda":
            raise DistributedError(
                f"transport={transport!r} moves arrays of the device 'cuda' and rank {rank} has "
                f"{its['device']!r}: take transport='host'"
            )
        if its["nccl"]:
            raise DistributedError(f"transport='nccl' was asked for and on rank {rank} {its['nccl']}")
        other = first_of.setdefault(its["gpu"], rank) if its["gpu"] else rank
        if other != rank:
            raise DistributedError(
                f"transport='nccl' was asked for and ranks {other} and {rank} share a GPU ({its['gpu']}): "
                "NCCL takes one rank a GPU; start fewer ranks, or take transport='host'"
            )


def cuda_transport(device: Device, transport: str, mpi: MpiTransport) -> Transport:
    """The way of the arrays of `device`; collective."""
    if not isinstance(device, CudaDevice):
        return mpi
    if transport == "nccl":
        return NcclTransport(device, mpi)
    if transport == "gpu":
        return MpiTransport(mpi.mpi, mpi.communicator, device.synchronize)
    return StagedTransport(device, mpi)
