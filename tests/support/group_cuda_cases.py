"""What every rank of a Group with CUDA arrays does, on a stand-in for CuPy; the argument is the transport."""

from __future__ import annotations

import sys
from typing import Any

import cupy_stub
import group_cases
import nccl_stub
import numpy as np
from group_cases import raises, values_of

from bppsa_cupy.distributed import Group, guard
from bppsa_cupy.distributed.group import BLOCK
from bppsa_cupy.distributed.transport import MpiTransport
from bppsa_cupy.errors import DistributedError


def case_values_around_rings(group: Group) -> None:
    """Every rank to every other, one distance after the other; each posts and sends before it waits."""
    device = group.device
    kinds = [("float32", (3, 5)), ("float64", (0, 4)), ("int64", ()), ("uint8", (70_000,))]
    for key, (dtype, shape) in enumerate(kinds):
        mine = device.asarray(values_of(group.rank, shape, dtype, key))
        for distance in range(1, group.size):
            source = (group.rank - distance) % group.size
            received = device.empty(shape, dtype)
            handle = group.post(received, source, key)
            sent = group.isend(mine, (group.rank + distance) % group.size, key)
            while key % 2 and not handle.test():
                group.progress()
            handle.wait()
            device.synchronize()
            np.testing.assert_array_equal(device.to_host(received), values_of(source, shape, dtype, key))
            sent.wait()
    group.finish()


def case_posts_in_the_order_sent(group: Group) -> None:
    """Several messages of one source, all posted first and waited for from the last."""
    if group.size == 1:
        return
    if group.rank == 1:
        for tag in range(4):
            group.isend(group.device.asarray(np.array([tag])), 0, tag)
    elif group.rank == 0:
        arrays = [group.device.empty(1, np.int64) for _ in range(4)]
        handles = [group.post(array, 1, tag) for tag, array in enumerate(arrays)]
        for handle in reversed(handles):
            handle.wait()
        group.device.synchronize()
        assert [int(array[0]) for array in arrays] == [0, 1, 2, 3]
    group.finish()


def case_a_relay(group: Group) -> None:
    """Each rank hands the sum so far to the next, and the end goes back to the first."""
    if group.size == 1:
        return
    device, last = group.device, group.size - 1
    array = device.zeros(1000, np.float64)
    if group.rank:
        group.receive(array, group.rank - 1)
    array += group.rank + 1
    if group.rank < last:
        group.isend(array, group.rank + 1)
    else:
        group.isend(array, 0)
    if group.rank == 0:
        group.receive(array, last)
        device.synchronize()
        assert (device.to_host(array) == sum(range(group.size + 1))).all()
    group.finish()


def case_collective_calls(group: Group) -> None:
    device = group.device
    for dtype in ("float32", "float64", "int32"):
        for shape in ((), (0,), (1000,), (BLOCK // 4 + 1,)):
            held = [values_of(rank, shape, dtype) for rank in range(group.size)]
            expected = held[0].copy()
            for other in held[1:]:
                expected = np.asarray(expected + other, dtype)
            mine = device.asarray(held[group.rank])
            group.sum(mine)
            device.synchronize()
            assert device.to_host(mine).tobytes() == expected.tobytes(), (dtype, shape)
        for root in range(group.size):
            mine = device.asarray(values_of(group.rank, (7,), dtype))
            group.broadcast(mine, root)
            device.synchronize()
            np.testing.assert_array_equal(device.to_host(mine), values_of(root, (7,), dtype))
    rows = [2 * rank for rank in range(group.size)]
    into = device.empty((sum(rows), 3), np.float32)
    group.allgather(device.asarray(values_of(group.rank, (rows[group.rank], 3), "float32")), into, rows)
    device.synchronize()
    expected = np.concatenate([values_of(rank, (rows[rank], 3), "float32") for rank in range(group.size)])
    np.testing.assert_array_equal(device.to_host(into), expected)


def case_a_message_leaves_while_its_sender_waits_for_all(group: Group) -> None:
    """Its receiver comes to the collective call behind it. NCCL's streams go on by themselves; those of the
    stand-in where they are asked."""
    if group.transport == "nccl":
        return
    device = group.device
    for call in (
        lambda: group.broadcast(device.zeros(3, np.float64)),
        lambda: group.sum(device.zeros(3, np.float64)),
        lambda: group.sum(np.zeros(3)),
        group.barrier,
    ):
        array = device.asarray(np.full(1000, 7.0))
        if group.rank == 0 and group.size > 1:
            group.isend(array, 1)
        elif group.rank == 1:
            array[...] = 0
            group.receive(array, 0)
        call()
        device.synchronize()
        assert (device.to_host(array) == 7).all()
    group.finish()


def case_arrays_of_the_host_go_by_mpi(group: Group) -> None:
    assert group.sum(np.ones(2))[0] == group.size
    group_cases.case_values_around_a_ring(group)
    group_cases.case_agree(group)


def case_messages_are_counted(group: Group) -> None:
    group_cases.case_messages_are_counted(group)


def watch(transport: str) -> None:
    """Let MPI refuse what it could not read on a GPU's machine: device arrays, but in "gpu" synchronised."""
    send, post = MpiTransport.send, MpiTransport.post
    checked = {"on the device": 0}

    def check(array: Any) -> None:
        if isinstance(array, cupy_stub.ndarray):
            assert transport == "gpu"
            checked["on the device"] += 1

    def checked_send(self: MpiTransport, array: Any, target: int, tag: int) -> Any:
        check(array)
        before = cupy_stub.Stream.current[-1].synchronized
        handle = send(self, array, target, tag)
        assert not isinstance(array, cupy_stub.ndarray) or cupy_stub.Stream.current[-1].synchronized > before
        return handle

    def checked_post(self: MpiTransport, array: Any, source: int, tag: int) -> Any:
        check(array)
        return post(self, array, source, tag)

    MpiTransport.send, MpiTransport.post = checked_send, checked_post


def main() -> None:
    transport = sys.argv[1]
    with guard():
        sys.modules["cupy"] = cupy = cupy_stub.make_cupy(devices=8)
        watch(transport)
        if transport == "nccl":
            with raises(DistributedError, "on rank 0 CuPy finds no NCCL .*: install nvidia-nccl-cu12"):
                Group(device="cuda", transport="nccl")
            sys.modules["cupy.cuda.nccl"] = nccl_stub
            nccl_stub.kind = tuple
            case_collective_calls(Group(device="cuda", transport="nccl"))
            nccl_stub.kind = bytes
        group = Group(device="cuda", transport=transport)
        assert cupy_stub.Gpu.current == group.rank
        for name, case in list(globals().items()):
            if name.startswith("case_"):
                case(group)
                group.barrier()
                if group.rank == 0:
                    print(name, flush=True)
        assert bool(nccl_stub.calls) == (transport == "nccl")
        if transport == "nccl" and group.size > 1:
            cupy.cuda.runtime.getDeviceCount = lambda: 1
            made = len(nccl_stub.calls)
            words = r"ranks 0 and 1 share a GPU \(.*, 0000:01:00.0\): NCCL takes one rank a GPU; start fewer"
            with raises(DistributedError, words):
                Group(device="cuda", transport="nccl")
            assert made == len(nccl_stub.calls)
        group.finish()


if __name__ == "__main__":
    main()
