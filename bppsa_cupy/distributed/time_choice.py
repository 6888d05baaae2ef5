"""How a walk over time is shared by ranks: which steps each rank holds, and how the way back goes."""

from __future__ import annotations

from bppsa_cupy.devices import Device
from bppsa_cupy.timescan import WalkSize

#: Seconds of an empty message and bytes per second, by transport: MPI through memory of the host, MPI on
#: memory of GPUs, NCCL.
LINKS = {"host": (2e-5, 4e9), "gpu": (2e-5, 1e10), "nccl": (2e-5, 5e10)}
#: On the host: samples that a thread walks at once, seconds per step whatever its size, multiply-adds per
#: second of those samples. Measured on two cores.
LANES, HOST_STEP, HOST_RATE = 16, 1e-8, 3.8e9
#: On a GPU: seconds per step of a walk and of a reduction, and chunks per rank that run at once.
GPU_STEP, GPU_REDUCE_STEP, GPU_CHUNKS = 1.5e-6, 3e-6, 64


def split_steps(steps: int, ranks: int, chunk: int) -> tuple[int, ...]:
    """Where the steps of each rank begin, and T: equal numbers of chunks, on as many ranks as there are
    chunks."""
    chunks = -(-steps // chunk)
    holders = min(ranks, chunks)
    return (*(-(-chunks * rank // holders) * chunk for rank in range(holders)), steps)


def chunk_length(device: Device, steps: int, ranks: int) -> int:
    """Steps per chunk: one chunk per rank on the host, where a thread reduces one at a time; GPU_CHUNKS per
    rank on a GPU. There are two chunks at least, where there are steps enough."""
    per_rank = 1 if device.shared_bytes is None else GPU_CHUNKS
    return max(1, min(-(-steps // (ranks * per_rank)), -(-steps // 2)))


def group_count(device: Device, batch: int, ranks: int) -> int:
    """Groups of samples that ranks take one after another: on the host a block of lanes per thread. One group
    on a GPU, where fewer samples take as long, and for a batch that does not fill its blocks, so that each
    sample goes by the same products as without groups."""
    if ranks == 1 or device.shared_bytes is not None or batch % LANES:
        return 1
    return max(1, -(-batch // LANES // device.workers))


def samples_per_group(batch: int, groups: int) -> int:
    """Samples of the largest group, whole blocks of lanes."""
    return batch if groups == 1 else -(-batch // (LANES * groups)) * LANES


def goes_by_chunks(device: Device, transport: str, size: WalkSize, ranks: int, groups: int) -> bool:
    """Whether the way back is quicker by chunks on all ranks at once than from rank to rank.

    size  of the whole walk

    From rank to rank, p + g - 1 groups of samples follow one another over T / p steps each. By chunks, each
    rank reduces its steps, which costs about H + 8 times a walk on the host, and expands them.
    """
    latency, rate = LINKS[transport]
    state = size.heads * samples_per_group(size.batch, groups) * size.state
    message = latency + state * size.itemsize / rate
    if device.shared_bytes is None:
        work = size.cell.sums * size.units**2 / HOST_RATE
        step = HOST_STEP + work
        chunked_step = step + work * size.cell.states * (size.units + 8)
    else:
        step, chunked_step = GPU_STEP, (GPU_STEP + GPU_REDUCE_STEP) / GPU_CHUNKS
    own = size.steps / ranks
    relayed = (ranks + groups - 1) * own * step + (ranks + groups - 2) * message
    return groups * (own * chunked_step + (ranks - 1) * message) < relayed
