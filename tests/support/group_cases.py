"""What every rank of a Group does in one start of mpiexec, with arrays of NumPy or of a device.

    group_cases.py [TRANSPORT]

With a transport the arrays are those of a stand-in for CuPy, and CUDA work runs as late as it may. Expected
values are those of NumPy, from what the other ranks are known to hold.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bppsa_cupy.distributed import Group, guard
from bppsa_cupy.distributed.group import BLOCK
from bppsa_cupy.errors import DistributedError, ShapeError

DTYPES = ("float32", "float64", "int64", "uint8", "bool")
SHAPES = ((), (0,), (1,), (3, 5), (0, 4), (70_000,))


def values_of(rank: int, shape: tuple[int, ...], dtype: str, key: int = 0) -> np.ndarray:
    """What `rank` holds."""
    rng = np.random.default_rng([rank, key, len(shape)])
    return np.asarray(rng.standard_normal(shape) * 100).astype(dtype)


@contextmanager
def raises(kind: type[Exception], words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert re.search(words, str(error)), f"{error!s} does not name {words}"
        return
    raise AssertionError(f"no {kind.__name__} that names {words}")


def assert_holds(group: Group, array, expected: np.ndarray) -> None:
    group.device.synchronize()
    np.testing.assert_array_equal(group.device.to_host(array), expected, strict=True)


def case_values_around_rings(group: Group) -> None:
    """Every rank to every other, one distance after the other; each sends before it waits."""
    device = group.device
    for key, dtype in enumerate(DTYPES):
        for shape in SHAPES:
            mine = device.asarray(values_of(group.rank, shape, dtype, key))
            for distance in range(1, group.size):
                source = (group.rank - distance) % group.size
                received = device.empty(shape, np.dtype(dtype))
                sent = group.isend(mine, (group.rank + distance) % group.size, key)
                group.receive(received, source, key)
                assert_holds(group, received, values_of(source, shape, dtype, key))
                sent.wait()
    group.finish()


def case_messages_in_the_order_sent(group: Group) -> None:
    """Several messages of one source."""
    if group.rank == 1:
        for tag in (0, 1, 1, 2):
            group.isend(group.device.asarray(np.array([tag])), 0, tag)
    elif group.rank == 0 and group.size > 1:
        for tag in (0, 1, 1, 2):
            array = group.device.empty(1, np.dtype(np.int64))
            group.receive(array, 1, tag)
            assert_holds(group, array, np.array([tag]))
    group.finish()


def case_large_messages_cross(group: Group) -> None:
    """All ranks send 10 MB to all others before any receives: no send may wait for its receiver."""
    others = [rank for rank in range(group.size) if rank != group.rank]
    mine = np.full(10_000_000 // 8, group.rank, np.float64)
    for rank in others:
        group.isend(mine, rank, 1)
    for rank in reversed(others):
        received = np.empty_like(mine)
        group.receive(received, rank, 1)
        assert (received == rank).all()
    group.finish()


def case_collective_calls(group: Group) -> None:
    """The bits of a sum are those of a loop over the ranks, also where a part of `BLOCK` ends."""
    device = group.device
    for dtype in ("float32", "float64", "int32"):
        for shape in (*SHAPES, (BLOCK // 4 + 1,)):
            held = [values_of(rank, shape, dtype) for rank in range(group.size)]
            expected = held[0].copy()
            for other in held[1:]:
                expected = np.asarray(expected + other, dtype)
            mine = device.asarray(held[group.rank].copy())
            assert group.sum(mine) is mine
            assert_holds(group, mine, expected)
        for root in range(group.size):
            mine = device.asarray(values_of(group.rank, (7,), dtype))
            group.broadcast(mine, root)
            assert_holds(group, mine, values_of(root, (7,), dtype))
    rows = [2 * rank % 5 for rank in range(group.size)]  # 0, 2, 4, 1, 3
    into = device.empty((sum(rows), 7), np.dtype(np.float32))
    group.allgather(device.asarray(values_of(group.rank, (rows[group.rank], 7), "float32")), into, rows)
    assert_holds(group, into, np.concatenate([values_of(r, (n, 7), "float32") for r, n in enumerate(rows)]))
    assert group.sum(np.ones(2))[0] == group.size  # arrays of the host travel by MPI
    assert group.any(group.rank == group.size - 1) and not group.any(False)


def case_agree(group: Group) -> None:
    group.agree()
    group.agree(plan="x" * 10**6, arguments=["--ranks", "layers"], batch=16)
    odd = group.size - 1
    if odd:
        with raises(DistributedError, rf"^ranks 0 and {odd} differ in batch: '16' and '17'"):
            group.agree(plan="3f2a", batch=16 + (group.rank == odd))
        with raises(DistributedError, rf"ranks 0 and {odd} differ in data: 'ä' and nothing"):
            group.agree(**({} if group.rank == odd else {"data": "ä"}))


def case_arguments_that_are_refused(group: Group) -> None:
    array, other = np.zeros((4, 4)), (group.rank + 1) % group.size
    if group.size > 1:
        for wrong in (array[:, ::2], np.array([None, 1]), [1.0]):
            with raises(ShapeError, "contiguous|cannot be sent"):
                group.isend(wrong, other)
    with raises(ShapeError, r"\(4, 4\) and into=.*rows=\["):
        group.allgather(array, array, [3] * group.size)
    with raises(DistributedError, "'pigeon'.*host, nccl"):
        Group(device="host", transport="pigeon")
    with raises(DistributedError, "nccl.*on rank 0 .*'host' is not a GPU"):
        Group(device="host", transport="nccl")
    if group.size > 1:
        with raises(DistributedError, "ranks 0 and 1 differ in transport"):
            Group(device="host", transport="nccl" if group.rank else "host")


def case_groups_do_not_mix(group: Group) -> None:
    second = Group(device=group.device)
    if group.rank == 1:
        second.send(np.array([2]), 0)
        group.send(np.array([1]), 0)
    elif group.rank == 0 and group.size > 1:
        for its, expected in ((group, 1), (second, 2)):
            array = np.zeros(1, int)
            its.receive(array, 1)
            assert array == expected
    second.close()


def case_a_wait_sleeps(group: Group) -> None:
    """A rank that waits leaves the core to others: 0.5 s cost it little time of its own."""
    if group.rank == 1:
        time.sleep(0.5)
        group.send(np.ones(1), 0)
    elif group.rank == 0 and group.size > 1:
        before = time.process_time()
        group.receive(np.empty(1), 1)
        assert time.process_time() - before < 0.2


def make_group(transport: str) -> Group:
    """A group of a GPU per rank, of the stand-in for CuPy."""
    import cupy_stub
    import nccl_stub

    sys.modules["cupy"] = cupy = cupy_stub.make_cupy(devices=8)
    if transport == "nccl":
        with raises(DistributedError, "on rank 0 CuPy finds no NCCL"):
            Group(device="cuda", transport="nccl")
        sys.modules["cupy.cuda.nccl"] = nccl_stub
        if int(cupy.cuda.runtime.getDeviceCount()) > 1:
            nccl_stub.kind = tuple  # identifiers as in CuPy 13
            case_collective_calls(Group(device="cuda", transport="nccl"))
            nccl_stub.kind = bytes
    group = Group(device="cuda", transport=transport)
    assert cupy_stub.Gpu.current == group.rank
    if transport == "nccl" and group.size > 1:
        cupy.cuda.runtime.getDeviceCount = lambda: 1
        with raises(DistributedError, r"ranks 0 and 1 share a GPU \(.*, 0000:01:00.0\)"):
            Group(device="cuda", transport="nccl")
        cupy.cuda.runtime.getDeviceCount = lambda: 8
        cupy_stub.Gpu.current = group.rank
    return group


def main() -> None:
    with guard():
        group = Group(device="host") if len(sys.argv) == 1 else make_group(sys.argv[1])
        for name, case in list(globals().items()):
            if name.startswith("case_"):
                case(group)
                group.barrier()
                if group.rank == 0:
                    print(name, flush=True)
        group.finish()


if __name__ == "__main__":
    main()
