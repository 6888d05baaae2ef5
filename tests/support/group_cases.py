"""What every rank of a Group does in one start of mpiexec: run each case, which every rank enters.

The expected values are NumPy's own, from what the other ranks are known to hold.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bppsa_cupy.distributed import Group, guard
from bppsa_cupy.distributed.group import BLOCK
from bppsa_cupy.distributed.waiting import wait_until
from bppsa_cupy.errors import DistributedError, ShapeError

DTYPES = ("float32", "float64", "int32", "int64", "uint32", "uint8", "bool")
SHAPES = ((), (0,), (1,), (3, 5), (0, 4), (2, 3, 4))
LARGE = 10_000_000


def values_of(rank: int, shape: tuple[int, ...], dtype: str, key: int = 0) -> np.ndarray:
    """What `rank` holds."""
    rng = np.random.default_rng([rank, key, len(shape)])
    return np.asarray(rng.standard_normal(shape) * 100).astype(dtype)


@contextmanager
def raises(kind: type[Exception], words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert re.search(words, str(error)), f"{error!s} does not tell {words}"
        return
    raise AssertionError(f"no {kind.__name__} that tells {words}")


def case_values_around_a_ring(group: Group) -> None:
    if group.size == 1:
        return
    following, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for key, dtype in enumerate(DTYPES):
        for shape in SHAPES:
            received = np.empty(shape, dtype)
            handle = group.post(received, before, key)
            group.send(values_of(group.rank, shape, dtype, key), following, key)
            handle.wait()
            assert handle.test()
            np.testing.assert_array_equal(received, values_of(before, shape, dtype, key), strict=True)


def case_tags_and_order(group: Group) -> None:
    """Tags may be received in any order; messages of one tag come in the order they were sent."""
    for source in range(group.size):
        for target in range(group.size):
            if source == target:
                continue
            if group.rank == source:
                for tag in (7, 3, 3, 5):
                    group.isend(np.array([tag, len(group.messages)]), target, tag)
                group.isend(np.array([99]), target, 3)
            elif group.rank == target:
                late = {tag: np.empty(2, np.int64) for tag in (5, 3, 7)}
                for tag, array in late.items():
                    group.receive(array, source, tag)
                    assert array[0] == tag
                group.receive(late[3], source, 3)
                last = np.empty(1, np.int64)
                group.receive(last, source, 3)
                assert last == 99
    group.finish()


def case_large_messages_cross(group: Group) -> None:
    """All ranks send 10 MB to all others before any receives: no send may wait for its receiver."""
    others = [rank for rank in range(group.size) if rank != group.rank]
    mine = np.full(LARGE // 8, group.rank, np.float64)
    handles = [group.isend(mine, rank, 1) for rank in others]
    for rank in reversed(others):
        received = np.empty(LARGE // 8, np.float64)
        group.receive(received, rank, 1)
        assert (received == rank).all()
    for handle in handles:
        handle.wait()


def case_receives_are_posted_ahead(group: Group) -> None:
    others = [rank for rank in range(group.size) if rank != group.rank]
    arrays = {rank: np.empty(1000, np.float32) for rank in others}
    handles = {rank: group.post(array, rank) for rank, array in arrays.items()}
    assert not any(handle.test() for handle in handles.values())
    group.barrier()
    for rank in others:
        group.isend(values_of(group.rank, (1000,), "float32"), rank)
    for rank in reversed(others):
        handles[rank].wait()
        np.testing.assert_array_equal(arrays[rank], values_of(rank, (1000,), "float32"))
    group.finish()


def case_messages_are_counted(group: Group) -> None:
    messages, sent = group.messages.copy(), group.bytes.copy()
    collectives = group.collectives.copy()
    if group.rank:
        group.send(np.zeros((3, group.rank), np.float32), 0)
        group.isend(np.zeros(0), 0)
    else:
        for rank in range(1, group.size):
            group.receive(np.empty((3, rank), np.float32), rank)
            group.receive(np.empty(0), rank)
    group.sum(np.ones(3))
    group.finish()
    assert group.messages - messages == ({0: 2} if group.rank else {})
    assert group.bytes - sent == ({0: 12 * group.rank} if group.rank else {})
    assert group.collectives - collectives == {"sum": 1}


def case_sums_in_rank_order(group: Group) -> None:
    """The sum's bits are those of a loop over the ranks, also where a part of `BLOCK` ends."""
    for dtype in ("float32", "float64", "int32", "int64"):
        for shape in (*SHAPES, (1000,), (BLOCK // 4 + 1,), (2 * BLOCK // 8,)):
            held = [values_of(rank, shape, dtype) for rank in range(group.size)]
            expected = held[0].copy()
            for other in held[1:]:
                expected = np.asarray(expected + other, dtype)
            mine = held[group.rank].copy()
            assert group.sum(mine) is mine
            assert mine.tobytes() == expected.tobytes(), (dtype, shape)


def case_allgather(group: Group) -> None:
    for dtype in DTYPES:
        for shape in ((1,), (0,), (2, 3), (4, 0)):
            into = np.empty((shape[0] * group.size, *shape[1:]), dtype)
            group.allgather(values_of(group.rank, shape, dtype), into)
            expected = np.concatenate([values_of(rank, shape, dtype) for rank in range(group.size)])
            np.testing.assert_array_equal(into, expected, strict=True)
    rows = [2 * rank % 5 for rank in range(group.size)]  # 0, 2, 4, 1, 3
    into = np.empty((sum(rows), 7), np.float32)
    group.allgather(values_of(group.rank, (rows[group.rank], 7), "float32"), into, rows)
    expected = np.concatenate([values_of(rank, (rows[rank], 7), "float32") for rank in range(group.size)])
    np.testing.assert_array_equal(into, expected)


def case_broadcast(group: Group) -> None:
    for root in range(group.size):
        for shape in (*SHAPES, (LARGE // 4,)):
            mine = values_of(group.rank, shape, "float32")
            group.broadcast(mine, root)
            np.testing.assert_array_equal(mine, values_of(root, shape, "float32"))


def case_agree(group: Group) -> None:
    group.agree()
    group.agree(plan="3f2a", arguments=["--ranks", "layers"], batch=16)
    group.agree(plan="x" * 10**6)
    odd = group.size - 1
    if not odd:
        return
    with raises(
        DistributedError, rf"^ranks 0 and {odd} differ in batch: '16' and '17'; start all ranks with"
    ):
        group.agree(plan="3f2a", batch=16 + (group.rank == odd))
    with raises(DistributedError, rf"ranks 0 and {odd} differ in data: 'ä' and nothing"):
        group.agree(**({} if group.rank == odd else {"data": "ä"}))
    with raises(DistributedError, r"differ in plan: 'a{200}'… \(SHA-256 \w{16}\) and 'a{200}'… \(SHA"):
        group.agree(plan="a" * 300 + str(group.rank == odd))


def case_bad_arguments_are_refused_before_any_message(group: Group) -> None:
    array, other = np.zeros((4, 4)), (group.rank + 1) % group.size
    locked = np.zeros((4, 4))
    locked.flags.writeable = False
    messages = group.messages.copy()
    if group.size > 1:
        for call, words in ((group.isend, "send to"), (group.post, "receive from")):
            with raises(
                ShapeError, rf"{words} rank {other}: an array of float64 \(4, 2\) is not C-contiguous"
            ):
                call(array[:, ::2], other)
            with raises(
                ShapeError, rf"{words} rank {other}: an array of object \(2,\) was given: it takes bool"
            ):
                call(np.array([None, 1]), other)
            with raises(
                ShapeError, rf"{words} rank {other}: a list was given: it takes an array of NumPy or"
            ):
                call([1.0], other)
            with raises(DistributedError, rf"{words} rank {other} with tag -1: tags are 0 to \d+"):
                call(array, other, -1)
        with raises(ShapeError, rf"receive from rank {other}: an array of float64 \(4, 4\) is read-only"):
            group.post(locked, other)
    for peer in (group.rank, -1, group.size):
        with raises(DistributedError, rf"rank {peer} on rank {group.rank} of {group.size}: there is no such"):
            group.send(array, peer)
    with raises(DistributedError, rf"broadcast from rank {group.size}: the ranks are 0 to {group.size - 1}"):
        group.broadcast(array, group.size)
    with raises(ShapeError, "sum: an array of bool .* was given: it takes numbers"):
        group.sum(np.zeros(3, bool))
    with raises(ShapeError, r"allgather into an array of float32 \(\d+, 4\): .* take float64"):
        group.allgather(array, np.zeros((4 * group.size, 4), np.float32))
    with raises(ShapeError, r"allgather into an array of float64 \(3, 4\)"):
        group.allgather(array, np.zeros((3, 4)))
    with raises(ShapeError, r"allgather of an array of 4 rows on rank \d of \d: rows \[.*\] tell another"):
        group.allgather(array, array, [3] * group.size)
    with raises(ShapeError, "allgather: an array of float64 .* was given: it has no rows"):
        group.allgather(np.zeros(()), np.zeros(group.size))
    assert group.messages == messages


def case_a_message_of_another_size(group: Group) -> None:
    if group.size == 1:
        return
    for sent, size in ((np.zeros(3), "more than 16"), (np.zeros(1), "8")):
        if group.rank == 1:
            group.send(sent, 0, 4)
        elif group.rank == 0:
            with raises(
                DistributedError,
                rf"a message of {size} bytes came from rank 1 with tag 4, the array to receive it has 16",
            ):
                group.receive(np.zeros(2), 1, 4)


def case_two_groups_do_not_mix(group: Group) -> None:
    second = Group(device="host")
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
    if group.size == 1:
        return
    if group.rank == 1:
        time.sleep(0.5)
        group.send(np.ones(1), 0)
    elif group.rank == 0:
        before = time.process_time()
        group.receive(np.empty(1), 1)
        assert time.process_time() - before < 0.2
    answers = iter([False] * 40)
    wait_until(lambda: next(answers, True))


def case_transports_that_cannot_be_had(group: Group) -> None:
    with raises(DistributedError, "transport 'pigeon' was asked for: the transports are 'host', 'gpu' and"):
        Group(device="host", transport="pigeon")
    for transport in ("gpu", "nccl"):
        with raises(
            DistributedError, f"transport='{transport}' moves arrays of the device 'cuda' and rank 0 has"
        ):
            Group(device="host", transport=transport)
    if group.size > 1:
        with raises(
            DistributedError, "rank 0 takes transport='host', rank 1 takes 'gpu': all ranks take one"
        ):
            Group(device="host", transport="gpu" if group.rank else "host")


def main() -> None:
    with guard():
        group = Group(device="host")
        for name, case in list(globals().items()):
            if name.startswith("case_"):
                case(group)
                group.barrier()
                if group.rank == 0:
                    print(name, flush=True)
        group.finish()


if __name__ == "__main__":
    main()
