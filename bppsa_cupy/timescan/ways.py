"""How a pass over time goes: serially or by chunks, and of which length; a serial one on a GPU by blocks, by
thread-block clusters, by the whole grid, or by a launch per step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

import numpy as np

from bppsa_cupy.devices import Array, Device, rules
from bppsa_cupy.devices.autotune import rounded
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.frames.clusters import (
    CLUSTERS,
    layout_of_clusters,
    layouts_of_clusters,
    sums_of,
)
from bppsa_cupy.raw_kernels.frames.grids import Tile, products_of, tile_of
from bppsa_cupy.raw_kernels.frames.kernels import real_of
from bppsa_cupy.raw_kernels.frames.places import is_wide
from bppsa_cupy.raw_kernels.frames.steps import MOST_GATES
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Layout
from bppsa_cupy.raw_kernels.twins.scans.reduce import MAXIMAL_STATE
from bppsa_cupy.timescan.walk import Walk, WalkSize

#: Steps that a serial walk is timed over; a step takes as long in a longer one.
TIMED_STEPS = 256


def key_of(kind: str, size: WalkSize, *more: object) -> str:
    """The key of a choice for a walk, without T."""
    digest = sha256(size.cell.cuda.encode()).hexdigest()[:8]
    shape = f"B{rounded(size.batch)} H{size.hidden} f{8 * size.itemsize}"
    return " ".join(map(str, (kind, f"{size.cell.name}:{digest}", shape, *more)))


def scratch_walk(device: Device, size: WalkSize) -> Walk:
    """A walk of this size over arrays of its own: weights of PyTorch's initial range, inputs around 0."""
    dtype, cell, random = np.dtype(f"f{size.itemsize}"), size.cell, np.random.default_rng(0)
    T, B, H = size.steps, size.batch, size.hidden

    def drawn(*shape: int) -> Array:
        return device.asarray(random.uniform(-1, 1, shape).astype(dtype) / np.sqrt(H).astype(dtype))

    def zeros(*shape: int) -> Array:
        return device.arrange(device.zeros(shape, dtype))

    return Walk(
        size, False, drawn(cell.sums * H, H), drawn(cell.sums * H), drawn(cell.parameters * H),
        device.asarray(np.full(B, T, np.int64)),
        zeros(cell.states * H, B), device.arrange(drawn(T, cell.gates * H, B)),
        zeros(T, cell.states * H, B), zeros(T, cell.saved * H, B), zeros(cell.states * H, B),
    )  # fmt: skip


def scratch_backward(device: Device, walk: Walk) -> tuple[Array, Array, Array, Array]:
    """The gradient with respect to every output, the one with respect to the last state, and the two results
    of a backward pass."""
    size, dtype = walk.size, walk.state.dtype
    state = size.cell.states * size.hidden, size.batch
    shapes = (
        (size.steps, size.hidden, size.batch),
        state,
        (size.steps, size.cell.deltas * size.hidden, size.batch),
        state,
    )
    by_output, last, delta, entering = (device.arrange(device.zeros(one, dtype)) for one in shapes)
    return by_output, last, delta, entering


def serial_ways(device: Device, size: WalkSize, verb: str) -> list[str]:
    """The ways of a whole walk "forward" or "backward" on this device, the choice of the table first. A layer
    whose units each have a place in a block goes by blocks alone. Raises DeviceError where there is none."""
    if device.shared_bytes is None or not size.batch:
        return ["blocks"]
    layout = block_layout(device, size, verb)
    if layout is not None and not is_wide(layout):
        return ["blocks"]
    clusters = [f"clusters {blocks}" for blocks in CLUSTERS if best_layout(device, size, verb, blocks)]
    grid = ["grid"] if grid_tile(device, size, verb) else []
    steps = ["steps"] if size.cell.gates <= MOST_GATES else []
    if layout is not None:
        return ["blocks", *clusters, *grid, *steps]
    ways = [*reversed(clusters), *grid, *steps]
    if not ways:
        raise DeviceError(
            f"{device.name} has no kernel for {size.cell.name} with {size.cell.gates} gates and "
            f"{size.hidden} hidden units: reduce the number of units, use a cell of at most {MOST_GATES} "
            "gates, or pass device='host'"
        )
    return ways


def block_layout(device: Device, size: WalkSize, verb: str) -> Layout | None:
    """The layout of a walk by blocks; None where a block cannot hold the weights."""
    assert device.shared_bytes is not None
    layouts = kernels_of(size.cell)[verb].layouts(real_of(size.itemsize), device.shared_bytes)
    return next((one for one in layouts if size.hidden <= one.width), None)


def serial_way(
    device: Device, size: WalkSize, verb: str, make: Callable[[Walk, str], Callable[[], None]]
) -> str:
    """The way of a whole walk: the quickest measured, or that of the fixed table.

    make  binds a pass over a scratch walk by a way
    """
    ways = serial_ways(device, size, verb)
    if len(ways) < 2:
        return ways[0]
    short = replace(size, steps=min(size.steps, TIMED_STEPS))

    def of_way(way: str) -> Callable[[], None]:
        return make(scratch_walk(device, short), way)

    tried = {way: partial(of_way, way) for way in ways}
    return device.choices.choose(key_of(verb, size), tried, ways[0])


def grid_tile(device: Device, size: WalkSize, verb: str) -> Tile | None:
    """The tile of a walk by the whole grid; None where the multiprocessors cannot hold the weights."""
    blocks, shared_bytes = device.cooperative_blocks, device.shared_bytes
    if not blocks or shared_bytes is None or not size.steps:
        return None
    sums, inputs = products_of(size.cell, verb)
    return tile_of(sums, inputs, size.hidden, size.batch, size.itemsize, blocks, shared_bytes)


def best_layout(device: Device, size: WalkSize, verb: str, blocks: int) -> Layout | None:
    """The layout of clusters of so many blocks; None where the device has none that hold the weights."""
    if blocks > device.cluster_blocks:
        return None
    sums, most = sums_of(size.cell, verb), device.shared_bytes
    assert most is not None
    layouts = layouts_of_clusters(sums, size.hidden, size.itemsize, most, device.cluster_blocks)
    fitting = [one for one in layouts if one.cluster == blocks]
    return layout_of_clusters(fitting, sums, size.itemsize, size.batch, device.workers)


def shared_lack(device: Device, size: WalkSize, verb: str, chunk: int) -> str | None:
    """Which block of a walk by chunks, "forward" by Newton's iteration or "backward", needs more shared
    memory than the device has; None where all fit."""
    there = device.shared_bytes
    if there is None:
        return None
    if block_layout(device, size, verb) is None:
        return f"no block holds the weights of {size.hidden} units"
    of_walk = {**dict(zip(("steps", "hidden", "batch"), size.scalars, strict=True)), "chunk": chunk}
    facts = device.facts_of_launch(
        {**of_walk, "first": 1, "per_step": 0, "states": size.cell.states}, size.itemsize
    )
    scan = KERNELS["newton_scan" if verb == "forward" else "chunk_scan"]
    for kernel in (kernels_of(size.cell)["reduce"], scan):
        needed = kernel.launch(facts).shared_bytes
        if needed > there:
            return f"a block of {kernel.name} takes {needed} bytes of shared memory, {there} are there"
    return None


#: Numbers of chunks that are tried on a GPU; the fewest steps of a walk that is tried by chunks, and by
#: Newton's iteration, for which the host waits; and the largest states, since products take H times a walk.
TRIED_CHUNKS = (25, 50, 100, rules.GPU_CHUNKS, 400, 800)
TRIED_STEPS, ITERATED_STEPS, TRIED_STATE, TRIED_ELEMENTS = 100, 5000, 256, 1 << 14


@dataclass(frozen=True)
class Choice:
    """How a pass over time is run.

    method   "serial" or "chunked"
    chunk    steps per chunk; T for the serial pass
    chunks   how many
    reason   why
    """

    method: str
    chunk: int
    chunks: int
    reason: str

    def __str__(self) -> str:
        if self.method == "serial":
            return f"serial ({self.reason})"
        return f"chunked, {self.chunks} chunks of {self.chunk} ({self.reason})"


def choose_walk(
    device: Device,
    size: WalkSize,
    verb: str,
    method: str,
    *,
    chunk: int | None = None,
    make: Callable[[Walk, int], Callable[[], None]],
    by_rule: bool = False,
) -> Choice:
    """The way a walk "forward" or "backward" is run.

    method  "serial" and "chunked" are taken as they are; "auto" is measured on a GPU, and follows the rules
            elsewhere. States above MAXIMAL_STATE, sequences of one step, and blocks that exceed the shared
            memory go serially
    chunk   its length, by default that of the rules
    make    binds the pass over a scratch walk by a chunk length, 0 for the serial pass
    by_rule  whether the rules take chunks for "auto"
    """

    def serially(reason: str) -> Choice:
        return Choice("serial", size.steps, 1, reason)

    if method == "serial":
        return serially("as asked for")
    if size.state > MAXIMAL_STATE:
        return serially(f"maps of {size.state} x {size.state} are beyond the kernels' {MAXIMAL_STATE}")
    if size.steps < 2 or (chunk is not None and chunk >= size.steps):
        return serially("one chunk")
    on_host = device.shared_bytes is None
    if method == "auto" and on_host:
        return serially(f"the rule for {device.name}")
    length = rules.chunk_length(on_host, size.steps) if chunk is None else chunk
    if lack := shared_lack(device, size, verb, length):
        return serially(lack)
    if method != "auto":
        return Choice("chunked", length, size.chunks(length), "as asked for")
    lengths = {f"{chunks} chunks": -(-size.steps // chunks) for chunks in TRIED_CHUNKS}
    if chunk is not None:
        lengths = {f"chunks of {chunk}": chunk}
    tried = {"serial": 0}
    least = TRIED_STEPS if verb == "backward" else ITERATED_STEPS
    small = size.state <= TRIED_STATE and size.batch * size.state <= TRIED_ELEMENTS
    for name, one in lengths.items():
        if one < size.steps and small and size.steps >= least:
            tried[name] = one
    default = next((name for name in tried if name.startswith(f"{rules.GPU_CHUNKS} ")), "serial")
    ways = {name: partial(_bind, device, size, make, one) for name, one in tried.items()}
    key = key_of(f"{verb} over time", size, f"T{rounded(size.steps)}")
    way = device.choices.choose(key, ways, default if by_rule else "serial")
    why = f"measured on {device.name}" if device.tunes else f"the rule for {device.name}"
    if way == "serial":
        return serially(why)
    return Choice("chunked", tried[way], size.chunks(tried[way]), why)


def _bind(
    device: Device, size: WalkSize, make: Callable[[Walk, int], Callable[[], None]], chunk: int
) -> Callable[[], None]:
    return make(scratch_walk(device, size), chunk)
