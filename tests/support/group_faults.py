"""What goes wrong on one rank while the others wait for it: `group_faults.py FAULT SEED`.

Prints "ready" on every rank when its fault is about to happen.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import numpy as np

from bppsa_cupy.distributed import Group, guard
from bppsa_cupy.errors import DataError
from bppsa_cupy.system.interrupts import one_interrupt


def wait_for_ever(group: Group) -> None:
    """Each way to wait, by rank: for a message, for a sum, for room to send, at a barrier."""
    other = (group.rank + 1) % group.size
    if group.rank % 4 == 0:
        group.receive(np.empty(3), other)
    elif group.rank % 4 == 1:
        group.sum(np.empty(3))
    elif group.rank % 4 == 2:
        group.send(np.empty(10_000_000), other)
    else:
        group.barrier()
    raise AssertionError("a wait for ever has ended")


def work(group: Group) -> None:
    """Messages around the ring, for ever."""
    following, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    mine, its = np.zeros(50_000), np.empty(50_000)
    while True:
        handle = group.post(its, before)
        group.send(mine, following)
        handle.wait()
        group.sum(mine[:10])


def main() -> None:
    fault, chance = sys.argv[1], random.Random(int(sys.argv[2]))
    with one_interrupt(), guard():
        if fault == "before" and os.environ["PMI_RANK"] == "1":
            raise DataError("digits.npz: no such file")
        group = Group(device="host")
        victim = chance.randrange(group.size)
        sys.stdout.write(f"ready {group.rank} {os.getpid()} {victim}\n")
        sys.stdout.flush()
        time.sleep(chance.random() / 5)
        if fault == "work":
            work(group)
        if fault == "all":
            raise DataError("digits.npz:\n no such file")
        if group.rank == victim:
            if fault == "raise":
                raise DataError("digits.npz: no such file")
            if fault == "bug":
                raise KeyError("width")
            if fault == "exit":
                sys.exit(7)
            if fault == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
        wait_for_ever(group)


if __name__ == "__main__":
    main()
