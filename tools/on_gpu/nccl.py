"""NCCL on this machine: the transport with communicators of one rank broadcasts and gathers, without MPI.

A line a size: seconds of each, and whether what was received is what was sent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.distributed.nccl import NcclTransport
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools.on_gpu.clocks import tell_timed
from bppsa_cupy.tools.on_gpu.lines import summary, tell
from bppsa_cupy.tools.on_gpu.passes import timed

#: Elements of float32.
SIZES = (1, 1 << 10, 1 << 20)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="nccl", description=__doc__)
    result.add_argument("--device", choices=("cuda",), default="cuda")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where all arrived, 1 where not or without NCCL."""
    device, failed = cast(CudaDevice, get_device(parser().parse_args(argv).device)), False
    alone: Any = SimpleNamespace(
        communicator=SimpleNamespace(rank=0, size=1, bcast=lambda value, root: value)
    )
    try:
        transport = NcclTransport(device, alone)
    except BppsaError as error:
        tell(error=str(error))
        return 1
    for size in SIZES:
        sent = device.asarray(np.arange(size, dtype=np.float32))
        into = device.empty(size, np.float32)
        line: dict[str, Any] = {"elements": size}
        line["broadcast"] = summary(timed(device, partial(transport.broadcast, sent, 0)))
        line["allgather"] = summary(timed(device, partial(transport.allgather, sent, into, [sent.nbytes])))
        device.synchronize()
        wanted = np.arange(size, dtype=np.float32)
        line["arrived"] = all(np.array_equal(device.to_host(array), wanted) for array in (sent, into))
        failed = failed or not line["arrived"]
        tell_timed(device, **line)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
