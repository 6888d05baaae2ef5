"""Sizes of passes over time, and the method of each pass: serial or by chunks, and how a GPU walks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch, rules
from bppsa_cupy.devices.autotune import rounded
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.frames.clusters import CLUSTERS, layout_of_clusters, layouts_of_clusters, sums_of
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.grids import Tile, products_of, tiles_of
from bppsa_cupy.raw_kernels.frames.kernels import real_of
from bppsa_cupy.raw_kernels.frames.places import is_wide
from bppsa_cupy.raw_kernels.frames.steps import MOST_GATES
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Layout
from bppsa_cupy.raw_kernels.twins.scans.reduce import MAXIMAL_STATE


@dataclass(frozen=True)
class WalkSize:
    """Sizes of a walk over time: the cell, T, B, H and the bytes of a value."""

    cell: CellForm
    steps: int
    batch: int
    hidden: int
    itemsize: int

    @cached_property
    def state(self) -> int:
        """S, the elements of the state of one sample."""
        return self.cell.states * self.hidden

    @cached_property
    def scalars(self) -> tuple[int, int, int]:
        """T, H and B, as kernels take them."""
        return self.steps, self.hidden, self.batch

    @cached_property
    def boundary_scalars(self) -> tuple[int, int, int]:
        """P, H and B, as scans over boundaries take them."""
        return self.cell.states, self.hidden, self.batch

    def chunks(self, chunk: int) -> int:
        """How many chunks of `chunk` steps there are, the last of which may be shorter."""
        return -(-self.steps // chunk)


@dataclass(frozen=True)
class StackSize:
    """The sizes of a stack.

    Attributes
    ----------
    walk
        The sizes of each walk.
    inputs
        Features of the input.
    every_step
        Whether walks read a gradient with respect to the first state of every step.
    unit
        The names of the cell's unit parameters.
    projects
        Whether the input is multiplied by W_ih; else it is the projected input.
    output
        The place of the state that is the output (see `form_of`).
    """

    walk: WalkSize
    inputs: int
    layers: int
    directions: int
    bias: bool
    every_step: bool
    unit: tuple[str, ...] = ()
    projects: bool = True
    output: int = 0

    @property
    def step_bytes(self) -> int:
        """Bytes of a step's input, projections, states and kept rows, of all samples."""
        cell, walk = self.walk.cell, self.walk
        rows = cell.gates + self.layers * (cell.states + cell.saved)
        return (self.inputs + rows * walk.hidden) * walk.batch * walk.itemsize

    def inputs_of(self, layer: int) -> int:
        """Features of an inner layer's input."""
        return self.directions * self.walk.hidden if layer else self.inputs


@dataclass(frozen=True, eq=False)
class Walk:
    """A cell that walks over steps s = 0, …, T - 1; step s is time t = s, or T - 1 - s where `reverse`.

    Arrays with samples, B, lie in memory as `Device.arrange` has them. G, P, K and Q are the cell's gates,
    states, kept rows and unit parameters, of H units each. A step with t >= lengths[b] leaves a sample's
    state as it is.

    Attributes
    ----------
    weight_hh
        (R H, H), of R recurrent gates.
    bias_hh
        (R H,); zeros where there are no biases.
    unit
        (Q H,).
    lengths
        (B), int64.
    initial
        (P H, B), the state before step 0.
    projected
        (T, G H, B), the input times weight_ih, with bias_ih.
    state
        (T, P H, B), out of the forward pass.
    gates
        (T, K H, B), out of the forward pass.
    final
        (P H, B), out of the forward pass: the state after the last step.
    """

    size: WalkSize
    reverse: bool
    weight_hh: Array
    bias_hh: Array
    unit: Array
    lengths: Array
    initial: Array
    projected: Array
    state: Array
    gates: Array
    final: Array

    @property
    def weights(self) -> tuple[Array, Array]:
        """What a step's Jacobian takes beside states and gates, as kernels take it."""
        return self.weight_hh, self.unit

    def time(self, step: int) -> int:
        """Which time step `step` is."""
        return self.size.steps - 1 - step if self.reverse else step

    def before(self, step: int) -> Array:
        """The states before step `step`, (P H, B); of step T, those after the last one."""
        return self.state[self.time(step - 1)] if step else self.initial

    def or_none(self, array: Array | None) -> Array:
        """`array`, or what kernels take in its place where there is none."""
        return self.unit[:0] if array is None else array


@dataclass(frozen=True, eq=False)
class Weights:
    """Parameters of one direction of one inner layer, or the gradients with respect to them; biases are None
    without.

    Attributes
    ----------
    weight_ih
        (G H, I), I being the features of the inner layer's input; None where the input is the projected
        input.
    weight_hh
        (R H, H), of R recurrent gates.
    bias_ih, bias_hh
        (G H,) and (R H,).
    unit
        The cell's unit parameters, (H,) each.
    """

    weight_ih: Array | None
    weight_hh: Array
    bias_ih: Array | None
    bias_hh: Array | None
    unit: tuple[Array, ...]


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
    by_output, last, delta, entering = (device.arrange(device.zeros(shape, dtype)) for shape in shapes)
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
    grid = list(grid_tiles(device, size, verb))
    steps = ["steps"] if size.cell.gates <= MOST_GATES else []
    if layout is not None:
        return ["blocks", *clusters, *grid[:1], *steps]
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
    return next((layout for layout in layouts if size.hidden <= layout.width), None)


def serial_way(device: Device, size: WalkSize, verb: str, make: Callable[[Walk, str], Launch]) -> str:
    """The way of a whole walk: the quickest measured, or that of the fixed table.

    Parameters
    ----------
    make
        Function that binds a pass over a scratch walk by a way.
    """
    ways = serial_ways(device, size, verb)
    if len(ways) < 2:
        return ways[0]
    short = replace(size, steps=min(size.steps, TIMED_STEPS))

    def bind(way: str) -> Launch:
        return make(scratch_walk(device, short), way)

    tried = {way: partial(bind, way) for way in ways}
    return device.choices.choose(key_of(verb, size), tried, ways[0])


def grid_tiles(device: Device, size: WalkSize, verb: str) -> dict[str, Tile]:
    """The tiles of walks by the whole grid, by their ways: in "grid 4" 4 blocks share out the terms of a sum.
    There are none where the multiprocessors cannot hold the weights."""
    blocks, shared_bytes = device.cooperative_blocks, device.shared_bytes
    if not blocks or shared_bytes is None or not size.steps:
        return {}
    sums, inputs = products_of(size.cell, verb)
    tiles = tiles_of(sums, inputs, size.hidden, size.batch, size.itemsize, blocks, shared_bytes)
    return {f"grid {tile.shares}": tile for tile in tiles}


def best_layout(device: Device, size: WalkSize, verb: str, blocks: int) -> Layout | None:
    """The layout of clusters of so many blocks; None where the device has none that hold the weights."""
    if blocks > device.cluster_blocks:
        return None
    sums, most = sums_of(size.cell, verb), device.shared_bytes
    assert most is not None
    layouts = layouts_of_clusters(sums, size.hidden, size.itemsize, most, device.cluster_blocks)
    fitting = [layout for layout in layouts if layout.cluster == blocks]
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
            return f"a block of {kernel.name} needs {needed} bytes of shared memory, but has only {there}"
    return None


#: Numbers of chunks that are tried on a GPU; the fewest steps of a walk that is tried by chunks, and by
#: Newton's iteration, for which the host waits; and the largest states, since products take H times a walk.
TRIED_CHUNKS = (25, 50, 100, rules.GPU_CHUNKS, 400, 800)
TRIED_STEPS, ITERATED_STEPS, TRIED_STATE, TRIED_ELEMENTS = 100, 5000, 256, 1 << 14


@dataclass(frozen=True)
class Choice:
    """How a pass over time is run.

    Attributes
    ----------
    method
        "serial" or "chunked".
    chunk
        Steps per chunk; T for the serial pass.
    chunks
        Number of chunks.
    reason
        Reason for the choice.
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
    make: Callable[[Walk, int], Launch],
    by_rule: bool = False,
) -> Choice:
    """The way a walk "forward" or "backward" is run.

    Parameters
    ----------
    method
        "serial" and "chunked" are taken as they are; "auto" is measured on a GPU, and follows the rules
        elsewhere. States above MAXIMAL_STATE, sequences of one step, and blocks that exceed the shared
        memory go serially.
    chunk
        Length of a chunk. Default: the length of the rules.
    make
        Function that binds the pass over a scratch walk by a chunk length, 0 for the serial pass.
    by_rule
        Whether the rules choose chunks for "auto".
    """

    def serially(reason: str) -> Choice:
        return Choice("serial", size.steps, 1, reason)

    if method == "serial":
        return serially("as asked for")
    if size.state > MAXIMAL_STATE:
        return serially(f"the state has {size.state} elements, but chunks support only {MAXIMAL_STATE}")
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
    if size.steps >= least and size.state <= TRIED_STATE and size.batch * size.state <= TRIED_ELEMENTS:
        tried |= {name: steps for name, steps in lengths.items() if steps < size.steps}
    default = next((name for name in tried if name.startswith(f"{rules.GPU_CHUNKS} ")), "serial")

    def bind(steps: int) -> Launch:
        return make(scratch_walk(device, size), steps)

    ways = {name: partial(bind, steps) for name, steps in tried.items()}
    key = key_of(f"{verb} over time", size, f"T{rounded(size.steps)}")
    way = device.choices.choose(key, ways, default if by_rule else "serial")
    why = f"measured on {device.name}" if device.tunes else f"the rule for {device.name}"
    if way == "serial":
        return serially(why)
    return Choice("chunked", tried[way], size.chunks(tried[way]), why)
