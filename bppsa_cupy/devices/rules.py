"""Fixed rules: which way work goes on the host, and on a GPU where nothing is measured (`autotune`).

The host measures nothing, so a network's results do not depend on what else the machine did. Each rule says
why in a line.
"""

from __future__ import annotations

import math

#: Multiply-adds by a list of kept weights cost as many by all weights, for planes of one position and of
#: more. Measured on two cores; the choice changes what a parameter holds, so a GPU does not measure it.
LISTED = {"host": (10.0, 2.8), "cuda": (20.0, 8.0)}

#: For a layer of PyTorch, multiply-adds by all weights that cost as much as the launches of its list, and as
#: the masking of one weight. Measured on one core.
LISTED_CALL, MASKING = 1 << 19, 8

#: A forward pass without a backward pass runs in parts of so many bytes, which stay in a core's cache, and
#: of so many samples times steps, which hide the packing of the weights.
BYTES_AT_ONCE, SAMPLE_STEPS_AT_ONCE = 1 << 24, 2048

#: Chunks of a backward pass that a caller asks for on the host: any number of threads gives the same bits.
HOST_CHUNKS = 16

#: A linear scan on the host needs so many numbers, and twice as many threads as samples and groups of
#: columns, because reducing before walking reads everything twice. A chunk stays in a core's cache.
HOST_SCANNED, HOST_SCAN_CHUNK, GROUP_BYTES = 1 << 19, 1024, 64

#: A GPU goes back by 200 chunks where a serial pass is long and its products are small: few threads walk
#: serially, and reducing costs H times a walk.
GPU_CHUNKS, GPU_LEAST_STEPS, GPU_MOST_STATE, GPU_MOST_ELEMENTS = 200, 10_000, 128, 1280

#: A GPU runs so many threads at once; a linear scan there takes chunks of the square root of a tenth of the
#: steps, which balances walks against the serial carry.
GPU_THREADS, GPU_LEAST_CHUNK = 132 * 1024, 16

#: A captured step on a GPU reduces chunks beside the forward pass, in so many launches at most, of so
#: many steps at least: each launch loads the weights again.
GPU_SEGMENTS, GPU_SEGMENT_STEPS = 8, 1024

#: Terms from which cuBLAS pays for its launches on a GPU, per launch of a convolution's products ("vjp"
#: kernels are quicker), and of a product over a sequence.
GPU_CONVOLUTION = {"forward": 1 << 23, "weight": 1 << 23, "vjp": 1 << 25}
GPU_PRODUCT = {"project": 1 << 27, "weight": 1 << 28}


def listed_cost(device: str, positions: int) -> float:
    """The cost of a multiply-add by a list of kept weights, in multiply-adds by all weights, for a layer of
    so many positions per output channel."""
    return LISTED["cuda" if device == "cuda" else "host"][positions > 1]


def steps_at_once(on_host: bool, step_bytes: int, batch: int, steps: int) -> int:
    """Steps that a forward pass without a backward pass takes at a time; a GPU takes all."""
    if not on_host:
        return steps
    return max(1, BYTES_AT_ONCE // step_bytes, SAMPLE_STEPS_AT_ONCE // batch)


def chunk_length(on_host: bool, steps: int) -> int:
    """Steps per chunk of a pass over time by chunks."""
    return max(1, -(-steps // (HOST_CHUNKS if on_host else GPU_CHUNKS)))


def backward_by_chunks(steps: int, walks: int, state: int) -> bool:
    """Whether a backward pass over time goes by chunks on a GPU; on the host passes over time are serial,
    since products of Jacobians cost H times a walk and a batch fills the threads."""
    return steps >= GPU_LEAST_STEPS and state <= GPU_MOST_STATE and walks * state <= GPU_MOST_ELEMENTS


def segment_length(steps: int, chunk: int) -> int:
    """Steps per launch of a forward pass beside which a GPU reduces chunks of so many steps: whole chunks."""
    launches = max(1, min(GPU_SEGMENTS, steps // GPU_SEGMENT_STEPS))
    return math.ceil(math.ceil(steps / chunk) / launches) * chunk


def scan_chunk(on_host: bool, workers: int, batch: int, steps: int, width: int, itemsize: int) -> int | None:
    """Steps per chunk of a linear scan; None for the serial scan."""
    if on_host:
        groups = batch * -(-width * itemsize // GROUP_BYTES)
        pays = 2 * groups <= workers and batch * steps * width >= HOST_SCANNED
        return HOST_SCAN_CHUNK if pays and steps > HOST_SCAN_CHUNK else None
    least = max(GPU_LEAST_CHUNK, math.sqrt(steps / 10), steps * batch * width / GPU_THREADS)
    chunk = 1 << math.ceil(math.log2(least))
    return chunk if 4 * chunk <= steps else None


def unfolds(on_host: bool, work: str, terms: int, launches: int) -> bool:
    """Whether a convolution's "forward", "vjp" or "weight" pass is a product of unfolded patches; never on
    the host, whose kernels hold patches in registers."""
    return not on_host and terms >= launches * GPU_CONVOLUTION[work]


def by_matmul(on_host: bool, work: str, terms: int) -> bool:
    """Whether a product over a sequence, "project" or "weight", is a call of cuBLAS; never on the host, whose
    kernels read the sequences as they are."""
    return not on_host and terms >= GPU_PRODUCT[work]
