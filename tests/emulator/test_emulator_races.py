"""The emulator finds races: each way to leave two accesses without order, beside one that orders them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulator.build import EmulationError
from emulator.device import RaceDevice
from emulator.text_kernel import array_inout, array_out, text_kernel
from executors import make_device

OUT = array_out("out", "real", "64")

#: What every body begins with.
HELD = "__shared__ real held[64]; const int t = threadIdx.x; held[t] = t; "
COPY = "__shared__ real held[64]; const int t = threadIdx.x; cp_async(held + t, given + t); "

#: A body over `out` with a place for what orders its accesses; what does; what does not; and what the error
#: says then: the array and its word, the first access, the second.
BODIES: dict[str, tuple[str, str, str, tuple[str, str, str]]] = {
    "a write before a read of another warp": (
        HELD + "ORDER; out[t] = held[t ^ 32];", "__syncthreads()", "__syncwarp()",
        ("byte 128 of shared held", "thread 32 of block 0 wrote it", "thread 0 of block 0 reads it"),
    ),
    "a write before a read within a warp": (
        HELD + "ORDER; out[t] = held[t ^ 1];", "__syncwarp()", "",
        ("byte 4 of shared held", "thread 0 of block 0 read it", "thread 1 of block 0 writes it"),
    ),
    "a shuffle orders no memory": (
        HELD + "ORDER; out[t] = held[t ^ 1];", "__syncwarp()", "__shfl_xor_sync(0xffffffffu, 1, 1)",
        ("byte 4 of shared held", "thread 1 of block 0 wrote it", "thread 0 of block 0 reads it"),
    ),
    "a barrier of half a warp": (
        HELD + "ORDER; out[t] = held[t ^ 16];", "__syncwarp()", "__syncwarp(t & 16 ? 0xffff0000u : 0xffffu)",
        ("byte 64 of shared held", "thread 16 of block 0 wrote it", "thread 0 of block 0 reads it"),
    ),
    "lanes that know of each other by a third": (
        HELD + "const int lane = t % 32; if (lane < 2) __syncwarp(3); ORDER;"
        "if (lane == 1 || lane == 2) __syncwarp(6); out[t] = held[lane == 2 ? t - 2 : t];",
        "", "if (lane == 0) held[t] = 2",
        ("byte 0 of shared held", "thread 0 of block 0 wrote it", "thread 2 of block 0 reads it"),
    ),
    "a read before the next write": (
        HELD + "__syncthreads(); const real value = held[63 - t]; ORDER; held[t] = value; out[t] = value;",
        "__syncthreads()", "__syncwarp()",
        ("byte 0 of shared held", "thread 63 of block 0 read it", "thread 0 of block 0 writes it"),
    ),
    "a thread that ends before the barrier": (
        HELD + "out[t] = 1; if (t % 2) { ORDER; return; } __syncthreads(); out[t] = held[t + 1];",
        "__syncthreads()", "",
        ("byte 4 of shared held", "thread 1 of block 0 wrote it", "thread 0 of block 0 reads it"),
    ),
    "dynamic shared memory": (
        HELD.replace("__shared__ real held[64]", "extern __shared__ real held[]")
        + "ORDER; out[t] = held[t ^ 32];",
        "__syncthreads()", "",
        ("byte 128 of shared memory", "thread 0 of block 0 read it", "thread 32 of block 0 writes it"),
    ),
    "equal values": (
        "__shared__ real held; ORDER held = 1; __syncthreads(); out[threadIdx.x] = held;",
        "if (threadIdx.x == 0)", "",
        ("byte 0 of shared held", "thread 0 of block 0 wrote it", "thread 1 of block 0 writes it"),
    ),
    "a copy that is not waited for": (
        COPY + "cp_async_commit_group(); ORDER; out[t] = held[t];",
        "cp_async_wait_group(0)", "cp_async_wait_group(1)",
        ("byte 0 of shared held", "thread 0 of block 0 copies to it and has not waited", "thread 0 "),
    ),
    "a copy that only its own thread waits for": (
        COPY + "cp_async_commit_group(); cp_async_wait_group(0); ORDER; out[t] = held[t ^ 1];",
        "__syncwarp()", "",
        ("byte 4 of shared held", "thread 0 of block 0 read it", "thread 1 of block 0 starts a copy to it"),
    ),
    "a copy over what is still read": (
        HELD + "__syncwarp(); out[t] = held[t ^ 1]; ORDER; cp_async(held + t, given + t);",
        "__syncwarp()", "",
        ("byte 0 of shared held", "thread 0 of block 0 copies to it", "thread 1 of block 0 reads it"),
    ),
}  # fmt: skip
GIVEN = array_inout("given", "real", "64")


def launch(body: str, **shape: int) -> tuple[np.ndarray, np.ndarray]:
    """What `body` leaves in `out` and `given` of 64 reals, on the device that finds races."""
    make_device("emulated")  # skips where there is no g++
    out, given = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    kernel = text_kernel(
        body, OUT, GIVEN, block=shape.get("block", 64), grid=shape.get("grid", 1), shared_bytes=256
    )
    RaceDevice().launch(kernel, out, given)
    return out, given


@pytest.mark.parametrize("name", BODIES)
def test_what_no_barrier_orders_is_an_error(name: str) -> None:
    body, orders, does_not, (where, before, now) = BODIES[name]
    launch(body.replace("ORDER", orders))
    with pytest.raises(EmulationError) as error:
        launch(body.replace("ORDER", does_not))
    assert error.value.args[0].startswith(f"probe: block (0, 0, 0): a race on {where}: {before}")
    assert now in error.value.args[0] and "nothing orders them" in error.value.args[0]


def test_the_error_quotes_both_lines() -> None:
    with pytest.raises(EmulationError) as error:
        launch("__shared__ real held[64];\nheld[threadIdx.x] = 1;\nout[threadIdx.x] = held[threadIdx.x ^ 1];")
    message = str(error.value)
    for line in re.findall(r"at line (\d+)", message):
        assert f"\n  {line}: " in message
    assert ": held[threadIdx.x] = 1;" in message and ": out[threadIdx.x] = held[threadIdx.x ^ 1];" in message


def test_blocks_are_never_ordered() -> None:
    body = "out[threadIdx.x + 32 * blockIdx.x] = 1;"
    body += "if (threadIdx.x == 5 * blockIdx.x) given[SHARED] = blockIdx.x;"
    launch(body.replace("SHARED", "blockIdx.x"), grid=2, block=32)
    with pytest.raises(
        EmulationError, match=r"on given\[7\]: thread 0 of block 0 wrote .* thread 5 of block 1 write"
    ):
        launch(body.replace("SHARED", "7"), grid=2, block=32)
    with pytest.raises(
        EmulationError, match=r"on given\[1\]: thread 0 of block 0 read .* thread 5 of block 1 write"
    ):
        launch(body.replace("SHARED] =", "blockIdx.x] = given[1] +"), grid=2, block=32)


#: Of two clusters of two blocks, whose threads each hand a number to the other block: what bodies begin with.
IN_CLUSTER = """
extern __shared__ real held[];
const int t = threadIdx.x, rank = blockIdx.x % 2, i = 32 * blockIdx.x + t;
held[t] = -1;
barrier_cluster_arrive(); barrier_cluster_wait();
"""
HANDED = IN_CLUSTER + "*mapa(held + (t ^ 1), 1 - rank) = i; ORDER; out[i] = held[t];"
#: Bodies, what orders their accesses, what does not, and what the error says then.
CLUSTERED: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "a remote write before a read": (
        HANDED, "barrier_cluster_arrive(); barrier_cluster_wait()", "__syncthreads()",
        (r"memory of the cluster's block \d: thread \d+ of block \d (wrote|read) it",),
    ),
    "a write behind the arrival": (
        IN_CLUSTER + "ORDER; barrier_cluster_wait(); out[i] = held[t];",
        "*mapa(held + (t ^ 1), 1 - rank) = i; barrier_cluster_arrive()",
        "barrier_cluster_arrive(); *mapa(held + (t ^ 1), 1 - rank) = i",
        ("a race on byte",),
    ),
    "a read before the next remote write": (
        HANDED.replace("ORDER", "barrier_cluster_arrive(); barrier_cluster_wait()")
        + "ORDER; *mapa(held + t, 1 - rank) = 0; barrier_cluster_arrive(); barrier_cluster_wait();",
        "barrier_cluster_arrive(); barrier_cluster_wait()", "__syncthreads()", (r"a race on byte",),
    ),
    "what a barrier of the block ordered, one of the cluster hands on": (
        IN_CLUSTER + "if (t == 3) *mapa(held + 5, 1 - rank) = i; ORDER; out[i] = t ? 1 : held[5];",
        "__syncthreads(); barrier_cluster_arrive(); barrier_cluster_wait()", "__syncthreads()",
        ("a race on",),
    ),
    "a block that has ended": (
        IN_CLUSTER + "if (rank) ORDER; *mapa(held + 32 + t, 1 - rank) = i; out[i] = 1;"
        "barrier_cluster_arrive(); barrier_cluster_wait();",
        "__syncwarp()", "{ out[i] = 1; return; }", ("has not started, or has ended",),
    ),
    "a block that has not started": (
        HANDED.replace("barrier_cluster_arrive(); barrier_cluster_wait();", "ORDER;", 1).replace(
            "ORDER; out", "barrier_cluster_arrive(); barrier_cluster_wait(); out"
        ),
        "barrier_cluster_arrive(); barrier_cluster_wait()", "", ("has not started, or has ended",),
    ),
    "a wait without an arrival": (
        IN_CLUSTER + "ORDER; barrier_cluster_wait(); out[i] = 1;", "barrier_cluster_arrive()", "",
        ("has not arrived",),
    ),
}  # fmt: skip


def in_cluster(body: str, device: RaceDevice) -> np.ndarray:
    """What two clusters of two blocks of a warp leave."""
    text = 'extern "C" __global__ void __cluster_dims__(2, 1, 1) probe(real* __restrict__ out)'
    kernel = text_kernel(
        f'#include "prelude.cuh"\n{text}\n{{{body}}}\n',
        array_out("out", "real", "128"),
        grid=4,
        shared_bytes=256,
    )
    out = np.zeros(128, np.float32)
    device.launch(kernel, out)
    return out


@pytest.mark.parametrize("name", CLUSTERED)
def test_what_no_barrier_of_the_cluster_orders_is_an_error(name: str) -> None:
    make_device("emulated")  # skips where there is no g++
    body, orders, does_not, words = CLUSTERED[name]
    in_cluster(body.replace("ORDER", orders), RaceDevice(architecture="sm_90"))
    with pytest.raises(EmulationError) as error:
        in_cluster(body.replace("ORDER", does_not), RaceDevice(architecture="sm_90"))
    for word in words:
        assert re.search(word, str(error.value))


def test_a_cluster_hands_numbers_from_block_to_block() -> None:
    """Static shared memory is each block's own; a GPU without clusters refuses the launch."""
    make_device("emulated")
    body = "__shared__ int own; if (threadIdx.x == 0) own = blockIdx.x; __syncthreads();" + HANDED.replace(
        "ORDER", "barrier_cluster_arrive(); barrier_cluster_wait()"
    )
    body += "__syncwarp(); out[i] += 1000 * own;"
    found = in_cluster(body, RaceDevice(architecture="sm_90")).reshape(4, 32)
    lanes = np.arange(32) ^ 1
    assert found.tolist() == [(32 * (block ^ 1) + lanes + 1000 * block).tolist() for block in range(4)]
    with pytest.raises(EmulationError, match="sm_75 has clusters of up to 1"):
        in_cluster(body, RaceDevice())


def test_atomic_operations_race_with_plain_accesses_alone() -> None:
    body = "out[threadIdx.x] = 1; atomicAdd(given, 1.0f); ORDER; if (threadIdx.x == 40) out[0] = given[0];"
    assert launch(body.replace("ORDER;", "__syncthreads();"))[1][0] == 64
    with pytest.raises(
        EmulationError, match=r"on given\[0\]: .* updated it at .* thread 40 of block 0 reads it"
    ):
        launch(body.replace("ORDER;", ""))
    with pytest.raises(EmulationError, match=r"on given\[0\]: one of several threads updated it"):
        launch(body.replace("ORDER;", "").replace("== 40) out[0] = given[0]", "== 63) out[63] = given[0]"))


def test_bytes_beside_each_other_are_words_of_their_own() -> None:
    launch("__shared__ char held[64]; held[threadIdx.x] = 1; out[threadIdx.x] = held[threadIdx.x];")


def test_a_word_that_a_pack_overlaps() -> None:
    body = """
    __shared__ __align__(16) real held[64];
    held[threadIdx.x] = 1; ORDER;
    const float4 four = reinterpret_cast<const float4*>(held)[threadIdx.x / 4];
    out[threadIdx.x] = four.x + four.w;
    """
    launch(body.replace("ORDER", "__syncwarp()"))
    with pytest.raises(EmulationError, match="of shared held"):
        launch(body.replace("ORDER", ""))


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_random_orders_are_those_of_their_seeds(seed: int) -> None:
    """Each block and each thread runs once, in an order of its own, which is the same again."""
    make_device("emulated")
    body = "out[atomicAdd(count, 1)] = blockIdx.x * 32 + threadIdx.x; __syncthreads();"
    kernel = text_kernel(body, array_inout("out", "int32", "128"), array_inout("count", "int32", "1"), grid=4)
    found = []
    for order in (seed, seed, seed + 1, 0):
        device = RaceDevice()
        device.orders = (order,)
        out = np.zeros(128, np.int32)
        device.launch(kernel, out, np.zeros(1, np.int32))
        assert sorted(out) == list(range(128))
        found.append(out.tolist())
    assert found[0] == found[1] and len({tuple(one) for one in found}) == 3
    assert found[3] == list(range(128))


def test_an_outcome_that_a_random_order_alone_changes() -> None:
    """The first block to come is neither of the ends: both fixed orders agree."""
    make_device("emulated")
    body = "if (blockIdx.x == 0 || blockIdx.x == 3) { if (threadIdx.x == 0) atomicCAS(first, -1, 1); }"
    body += "else if (threadIdx.x == 0) atomicCAS(first, -1, 0);"
    kernel = text_kernel(body, array_inout("first", "int32", "1"), grid=4)
    first = np.full(1, -1, np.int32)
    device = RaceDevice(seeds=())
    device.launch(kernel, first)
    assert first[0] == 1
    first[0] = -1
    with pytest.raises(EmulationError, match=r"first\[0\] is 1 .* and 0 in the random order of seed \d"):
        RaceDevice(seeds=range(2, 8)).launch(kernel, first)
