"""What goes wrong on one rank while the others wait for it: `group_faults.py FAULT`.

Rank 1 prints its process id when its fault is about to happen.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext

import numpy as np

from bppsa_cupy.distributed import Group, guard
from bppsa_cupy.errors import DataError


def wait_for_ever(group: Group) -> None:
    """Each way to wait, by rank: for a sum, for a message, for room to send."""
    if group.rank == 0:
        group.sum(np.empty(3))
    elif group.rank == 1:
        group.receive(np.empty(3), 0)
    else:
        group.send(np.empty(10_000_000), 0)
    raise AssertionError("a wait for ever has ended")


def main() -> None:
    fault = sys.argv[1]
    with nullcontext() if fault.startswith("plain") else guard():
        if fault == "before" and os.environ["PMI_RANK"] == "1":
            raise DataError("digits.npz: no such file")
        group = Group(device="host")
        group.barrier()
        if fault == "all":
            raise DataError("digits.npz: no such file")
        if group.rank == 1:
            print(os.getpid(), flush=True)
            if fault == "raise":
                raise DataError("digits.npz: no such file")
            if fault in ("bug", "plain bug"):
                raise KeyError("width")
            if fault in ("exit", "plain exit"):
                sys.exit(7)
            if fault == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
        wait_for_ever(group)


if __name__ == "__main__":
    main()
