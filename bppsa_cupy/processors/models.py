"""Processors in the numbers that the ways of layers depend on, and the seconds of their parts."""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bppsa_cupy.devices import Device
from bppsa_cupy.processors.calibration import RATES, SECONDS, measured_fields
from bppsa_cupy.processors.sizes import ConvolutionSize, SequenceProductSize, StackSize, WalkSize
from bppsa_cupy.processors.warps import Warps, reducing, shared_by_chunks, stepping, walking
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.frames.clusters import groups_of, layouts_of_clusters, step_cycles, sums_of
from bppsa_cupy.raw_kernels.frames.kernels import WARP
from bppsa_cupy.raw_kernels.frames.steps import MOST_GATES
from bppsa_cupy.raw_kernels.kernel import Layout
from bppsa_cupy.system.calibration import calibration_version


@dataclass(frozen=True)
class Processor(abc.ABC):
    """A processor.

    workers     multiprocessors, or threads
    launch      seconds of a launch
    check       seconds until the host knows whether all boundaries are finite
    listed      the time of a multiply-add by a list of kept weights, in those of one by all weights, for
                planes of one position and of more; never calibrated, so that a network's results are the same
                on any number of threads
    calibrated  whether its numbers were measured on the one at hand
    """

    name: str
    workers: int
    launch: float
    check: float
    listed: tuple[float, float]
    calibrated: bool = field(default=False, compare=False, kw_only=True)

    @property
    def group_lanes(self) -> int:
        """Samples that a walk takes as lanes: ranks in a row can go on with some blocks of them while others
        are on their way. 0 where a walk of fewer samples takes as long."""
        return 0

    @property
    def label(self) -> str:
        """What its predictions are told by."""
        return self.name if self.calibrated else f"{self.name}, uncalibrated"

    @abc.abstractmethod
    def walk_seconds(self, size: WalkSize, verb: str, chunks: int) -> float:
        """All chunks at once step by step, "forward" or "backward"."""

    def list_cost(self, positions: int) -> float:
        """The cost of a multiply-add by the list of kept weights, in those of one by all weights, for a
        convolution of so many positions a channel of its output."""
        return self.listed[positions > 1]

    def prefers_unfolding(self, size: ConvolutionSize, work: str) -> bool:
        """Whether the "forward", "vjp" or "weight" pass of a convolution is quicker by matrix products of
        unfolded patches than by the kernels that go through windows."""
        return False

    def prefers_matmul(self, size: SequenceProductSize, work: str) -> bool:
        """Whether a product over a sequence, "project" or "weight", is quicker by the array module's matmul
        than by the kernel; in float32, and so in float64."""
        return False

    def goes_by_steps(self, size: WalkSize, verb: str) -> bool:
        """Whether a whole sequence is walked by a launch a step, where it is not by clusters."""
        return False

    def cluster_layout(
        self, size: WalkSize, verb: str, resident: Callable[[Layout], int] | None = None
    ) -> Layout | None:
        """The layout of thread-block clusters by which a whole sequence is walked; None where it goes another
        way.

        resident  how many clusters of a layout run at once, as the device says; by default an estimate
        """
        return None

    def steps_at_once(self, size: StackSize) -> int:
        """How many steps of a forward pass without a way back are taken at a time."""
        return size.walk.steps

    def lack(self, size: WalkSize, verb: str, chunk: int) -> str | None:
        """Which block of a walk by chunks of `chunk` steps takes more shared memory than there is, and by how
        much; None where all have what they take. One chunk is a walk without reduction and scan."""
        return None

    def copy_seconds(self, nbytes: int) -> float:
        """Copies into another order of axes that read and write so many bytes in all."""
        return 0.0

    @abc.abstractmethod
    def reduce_seconds(self, size: WalkSize, chunk: int, first: int = 1) -> float:
        """The products of the Jacobians of every chunk from number `first` on."""

    @abc.abstractmethod
    def scan_seconds(self, size: WalkSize, chunks: int) -> float:
        """The values at the boundaries of chunks."""


@dataclass(frozen=True)
class HostModel(Processor):
    """A processor that runs the twins.

    serial_step  seconds of a step of a walk whatever its size
    serial_rate, reduce_rate  multiply-adds a second of one thread in a walk and a reduction, each of `lanes`
                 samples at once
    scan_rate    those of its scan over boundaries
    """

    serial_step: float
    serial_rate: float
    lanes: int
    reduce_rate: float
    scan_rate: float

    @property
    def group_lanes(self) -> int:
        return self.lanes

    def walk_seconds(self, size: WalkSize, verb: str, chunks: int) -> float:
        if not size.cell.sums:
            return size.chunks(chunks) * self._element_seconds(size, chunks, WALKED_ROW) + self.launch
        work = size.cell.sums * size.units**2
        walks = -(-chunks * size.heads * -(-size.batch // self.lanes) // self.workers)
        return size.chunks(chunks) * walks * (self.serial_step + work / self.serial_rate) + self.launch

    def steps_at_once(self, size: StackSize) -> int:
        return max(1, BYTES_AT_ONCE // size.step_bytes, SAMPLE_STEPS_AT_ONCE // size.walk.batch)

    def copy_seconds(self, nbytes: int) -> float:
        return nbytes / COPIED_BY_HOST

    def reduce_seconds(self, size: WalkSize, chunk: int, first: int = 1) -> float:
        if not size.cell.sums:
            row = (1 + size.state) * REDUCED_ROW
            return chunk * self._element_seconds(size, size.chunks(chunk) - first, row)
        # Columns are scaled, gate by gate, before they are multiplied.
        groups = (size.chunks(chunk) - first) * size.heads * -(-size.batch // self.lanes)
        work = size.cell.sums * size.units * size.state * (size.units + 8)
        return chunk * -(-groups // self.workers) * work / self.reduce_rate

    def _element_seconds(self, size: WalkSize, chunks: int, row: float) -> float:
        """Seconds of a step of all elements of `chunks` chunks of a cell without recurrent gates; a group of
        lanes takes `row` seconds for each row that it reads or writes."""
        groups = chunks * -(-size.walks // self.lanes)
        rows = size.cell.gates + size.cell.kept + size.cell.states
        return -(-groups // self.workers) * rows * row

    def scan_seconds(self, size: WalkSize, chunks: int) -> float:
        if not size.cell.sums:
            return (chunks - 1) * -(-size.walks // self.workers) * SCANNED_MAP
        rounds = -(-size.walks // (8 * self.workers))
        return (chunks - 1) * size.state**2 / self.scan_rate * rounds


@dataclass(frozen=True)
class GpuModel(Processor):
    """A GPU, whose kernels take what their machine code says (`warps`).

    schedulers, registers  of a multiprocessor, and of a scheduler
    shared_bytes           of a block, at most; `cluster_blocks` of a thread-block cluster, 1 without any
    alone, busy            clocks in Hz with little to do, and when all schedulers have warps
    cache, memory          bytes a second from L2, and from memory, and `cache_bytes` of weights that L2 holds
    following              seconds from a kernel of a graph to one that waits for it
    call, products         seconds of a launch that Python makes, multiply-adds a second of a matrix product
    factors                seconds by those counted, of each kind of kernel (`warps.KINDS`), as "KIND busy" of
                           launches that give all schedulers warps; 1 for others
    """

    schedulers: int
    registers: int
    shared_bytes: int
    cluster_blocks: int
    alone: float
    busy: float
    cache: float
    memory: float
    cache_bytes: int
    following: float
    call: float
    products: float
    factors: Mapping[str, float] = field(default_factory=dict)

    @property
    def measured(self) -> dict[str, Any]:
        """What a calibration measures of it, as JSON has it."""
        numbers = {name: getattr(self, name) for name in (*SECONDS, *RATES)}
        return {**numbers, "factors": dict(self.factors)}

    def prefers_unfolding(self, size: ConvolutionSize, work: str) -> bool:
        # A product has no fewer rows than a tile of cuBLAS.
        rows = max(size.outputs // size.groups, 16) * size.groups
        read_and_written = 2 * size.positions * (size.groups * size.depth + size.outputs) * size.itemsize
        once, of_group = UNFOLDING_LAUNCHES[work]
        by_products = (
            self.call * size.parts * (once + of_group * size.groups)
            + read_and_written / self.memory
            + size.positions * size.depth * rows / self.products
        )
        issued = self.workers * self.schedulers * WARP * self.busy
        terms = size.positions * size.depth * size.outputs
        return by_products < self.call + terms * WINDOW_INSTRUCTIONS[work] / issued

    def prefers_matmul(self, size: SequenceProductSize, work: str) -> bool:
        return self.matmul_seconds(size, work) < self.sequence_product_seconds(size, work)

    def sequence_product_seconds(self, size: SequenceProductSize, work: str) -> float:
        """A product over a sequence by its kernel."""
        terms = size.steps * size.batch * size.rows * size.columns
        issued = self.workers * self.schedulers * WARP * self.busy
        return self.call + terms * SEQUENCE_INSTRUCTIONS[work] / issued

    def matmul_seconds(self, size: SequenceProductSize, work: str) -> float:
        """The same by cuBLAS: a projection as a batch of products, one a step, of which none has fewer
        columns than a tile, or of one sample as one product; a gradient as one product, of copies by row."""
        as_one = work == "weight" or size.batch == 1
        batch = size.batch if as_one else max(size.batch, CUBLAS_COLUMNS)
        moved = size.steps * size.batch * (size.rows + size.columns) * np.dtype(np.float32).itemsize
        copied, launches = (self.copy_seconds(2 * moved), 4) if work == "weight" else (0.0, 3)
        multiplied = size.steps * batch * size.rows * size.columns / self.products
        return launches * self.call + copied + moved / self.memory + multiplied

    def is_filled(self, warps: Warps) -> bool:
        """Whether some scheduler has more than one of the warps."""
        return warps.number > self.workers * self.schedulers

    def class_of(self, warps: Warps) -> str:
        """The class of a launch, by which its measured factor is known."""
        return f"{warps.kind} busy" if self.is_filled(warps) else warps.kind

    def factor(self, name: str) -> float:
        """The measured factor of a class of launches; where only the other class of its kind was measured,
        that one; else 1."""
        kind = name.removesuffix(" busy")
        known = (self.factors[one] for one in (name, kind, f"{kind} busy") if one in self.factors)
        return next(known, 1.0)

    def step_seconds(self, warps: Warps) -> float:
        """Seconds of a step of a launch: the larger of a warp's cycles, times the waves that registers allow,
        and the instructions that a scheduler issues for all its warps."""
        each = -(-warps.number // (self.workers * self.schedulers))
        resident = self.registers // (32 * warps.registers)
        cycles = max(-(-each // resident) * warps.cycles, each * warps.instructions)
        clock = self.busy if self.is_filled(warps) else self.alone
        return self.factor(self.class_of(warps)) * cycles / clock

    def walk_seconds(self, size: WalkSize, verb: str, chunks: int) -> float:
        if not size.cell.sums:
            return size.chunks(chunks) * self._element_seconds(size, chunks) + self.launch
        if chunks == 1:
            layout = self.cluster_layout(size, verb)
            if layout is None:
                return size.steps * self.other_step_seconds(size, verb) + self.launch
            return size.steps * self.cluster_step_seconds(size, verb, layout) + self.launch
        return size.chunks(chunks) * self.walk_in_blocks_seconds(size, verb, chunks) + self.launch

    def other_step_seconds(self, size: WalkSize, verb: str) -> float:
        """A step of a whole sequence without clusters."""
        way = self.single_step_seconds if self.goes_by_steps(size, verb) else self.walk_in_blocks_seconds
        return way(size, verb)

    def cluster_step_seconds(
        self, size: WalkSize, verb: str, layout: Layout, resident: int | None = None
    ) -> float:
        """A step of a walk by clusters of a layout, of which so many run at once."""
        groups = groups_of(layout, size.heads, size.batch)
        cycles = step_cycles(layout, sums_of(size.cell, verb), size.itemsize)
        waves = -(-groups // (resident or self.resident_clusters(layout)))
        warps = groups * layout.cluster * layout.units * layout.lanes // WARP
        clock = self.busy if warps > self.workers * self.schedulers else self.alone
        # The products are those of a walk by blocks.
        return self.factor(f"{verb} by blocks") * waves * cycles / clock

    def resident_clusters(self, layout: Layout) -> int:
        """Clusters that run at once, an estimate: one has all its blocks in one group of multiprocessors."""
        of_group = OF_GROUP // layout.cluster
        return max(1, self.workers // OF_GROUP * of_group or self.workers // layout.cluster)

    def cluster_layout(
        self, size: WalkSize, verb: str, resident: Callable[[Layout], int] | None = None
    ) -> Layout | None:
        if self.cluster_blocks == 1 or not size.cell.sums or not size.walks:
            return None
        longest, ask = SURE * self.other_step_seconds(size, verb), resident or self.resident_clusters
        layouts = layouts_of_clusters(
            sums_of(size.cell, verb), size.units, size.itemsize, self.shared_bytes, self.cluster_blocks
        )

        def seconds(layout: Layout, found: int | None = None) -> float:
            return self.cluster_step_seconds(size, verb, layout, found)

        tried: set[int] = set()
        for first in sorted(layouts, key=seconds):
            if seconds(first) >= longest:
                return None
            if first.cluster in tried:
                continue
            tried.add(first.cluster)
            if found := ask(first):
                # Where as many run at once, another of so many blocks may be the quickest.
                alike = [(seconds(one, found), one) for one in layouts if one.cluster == first.cluster]
                least, layout = min(alike)
                if least < longest and ask(layout):
                    return layout
        return None

    def _element_seconds(self, size: WalkSize, chunks: int) -> float:
        """A step of the elements of so many chunks, of a cell without recurrent gates: a thread waits for
        what it reads of some steps at once, or all for memory."""
        elements, cell = chunks * size.hidden * size.batch, size.cell
        rounds = -(-elements // (self.workers * ELEMENTS_AT_ONCE))
        moved = elements * (cell.gates + cell.kept + 2 * cell.states) * size.itemsize
        return max(rounds * STEP_OF_ELEMENT, moved / self.memory)

    def walk_in_blocks_seconds(self, size: WalkSize, verb: str, chunks: int = 1) -> float:
        """A step of a walk whose blocks go through all steps."""
        return self.step_seconds(walking(size, verb, chunks, self.shared_bytes))

    def single_step_seconds(self, size: WalkSize, verb: str) -> float:
        """A step that is a launch: its warps, or what they read, if that takes longer."""
        warps, read = stepping(size, verb)
        rate = self.cache if self.is_cached(size) else self.memory
        return self.following + max(self.step_seconds(warps), read / rate)

    def is_cached(self, size: WalkSize) -> bool:
        """Whether L2 holds the weights from step to step."""
        return size.cell.sums * size.hidden * size.units * size.itemsize <= self.cache_bytes

    def goes_by_steps(self, size: WalkSize, verb: str) -> bool:
        if not size.cell.sums or size.cell.gates > MOST_GATES or not size.walks:
            return False
        if self.lack(size, verb, max(1, size.steps)):
            return True
        return self.single_step_seconds(size, verb) < self.walk_in_blocks_seconds(size, verb)

    def lack(self, size: WalkSize, verb: str, chunk: int) -> str | None:
        if not size.cell.sums:
            return None
        there = self.shared_bytes
        for kernel, needed in shared_by_chunks(size, verb, chunk, there):
            if needed > there:
                return f"a block of {kernel} takes {needed} bytes of shared memory, {there} are there"
        return None

    def copy_seconds(self, nbytes: int) -> float:
        return STRIDED * nbytes / self.memory

    def reduce_seconds(self, size: WalkSize, chunk: int, first: int = 1) -> float:
        if not size.cell.sums:
            return chunk * self._element_seconds(size, max(1, size.chunks(chunk) - first))
        return chunk * self.step_seconds(reducing(size, chunk, self.shared_bytes, first))

    def scan_seconds(self, size: WalkSize, chunks: int) -> float:
        # A block takes a walk: to 40 elements as long as a product in registers, beyond as its map is read.
        rounds = -(-size.walks // (8 * self.workers))
        cycles = max(11.5 * size.state, 0.2 * size.state**2)
        return self.factor("scan") * (chunks - 1) * cycles / self.alone * rounds


#: Instructions of a multiply-add in the kernels that go through windows (docs/results/machine-code.md).
WINDOW_INSTRUCTIONS = {"forward": 37.0, "vjp": 9.2, "weight": 34.0}
#: Those of a multiply-add in the products over sequences: what the pipe that holds them up has room for.
SEQUENCE_INSTRUCTIONS = {"project": 7.4, "weight": 5.5}
#: Multiprocessors of a group (a GPC), in which a cluster has its blocks; and the part of another way's time
#: that the one by clusters, of which more is an estimate, takes at most where it is gone.
OF_GROUP, SURE = 16, 0.8
#: Columns of a tile of cuBLAS, at least.
CUBLAS_COLUMNS = 32
#: Launches of matrix products for a part of the batch and, of each part, a group.
UNFOLDING_LAUNCHES = {"forward": (2, 1), "vjp": (2, 1), "weight": (3, 1)}

#: `listed` of a GPU is from instructions (docs/performance-gpu-predictions.md).
H200 = GpuModel(
    name="cuda",
    workers=132,
    launch=5e-6,
    check=2e-5,
    listed=(20.0, 8.0),
    schedulers=4,
    registers=16384,
    shared_bytes=ARCHITECTURES["sm_90"].shared_bytes,
    cluster_blocks=ARCHITECTURES["sm_90"].cluster_blocks,
    alone=1.98e9,
    busy=1.7e9,
    cache=5.5e12,
    memory=4.3e12,
    cache_bytes=40 << 20,
    following=1.2e-6,
    call=1e-5,
    products=2e13,
)

#: `host`: 2 cores at some 4 GHz with registers of 16 float32; `listed` was measured (docs/pruning.md).
MODELS: dict[str, Processor] = {
    "cuda": H200,
    "host": HostModel(
        name="host",
        workers=2,
        launch=5e-6,
        check=0.0,
        listed=(10.0, 2.8),
        serial_step=1e-8,
        serial_rate=3.8e9,
        lanes=16,
        reduce_rate=3.3e9,
        scan_rate=1.5e9,
    ),
}


#: Of a cell without recurrent gates on the host: seconds of a row of a step of a group of lanes in a walk,
#: and in a reduction for each column and once more; of a unit's map in a scan. As measured on a busy machine.
WALKED_ROW, REDUCED_ROW, SCANNED_MAP = 6e-9, 2e-9, 5e-8
#: The same of a GPU, estimated: seconds of a step of a thread, which reads several at once, and the threads
#: of a multiprocessor.
STEP_OF_ELEMENT, ELEMENTS_AT_ONCE = 2e-7, 1024

#: How much longer than by memory's rate a GPU's copies take whose reads or writes are not side by side, and
#: bytes a second of the host's: estimates.
STRIDED, COPIED_BY_HOST = 3.0, 4e9

#: A pass without a way back that the host takes in parts has parts of so many bytes at least, and of so many
#: steps times samples: what a part costs beside, packing the weights, is some 60 / B steps of B samples.
BYTES_AT_ONCE, SAMPLE_STEPS_AT_ONCE = 1 << 24, 2048

#: The part of L2 in which weights stay from step to step; the rest is for what else steps read and write.
HELD_BY_L2 = 0.8


def estimates(device: str) -> Processor:
    """The estimates for the device called `device`; one that has none is taken for the host."""
    return MODELS.get(device, MODELS["host"])


def built_in(device: Device) -> Processor:
    """The estimates for `device`, with its own number of workers, a GPU's shared memory, clusters and L2."""
    model = replace(estimates(device.name), workers=device.workers)
    if not isinstance(model, GpuModel):
        return model
    shared, cache = device.shared_bytes, device.cache_bytes
    return replace(
        model,
        shared_bytes=shared or model.shared_bytes,
        cluster_blocks=device.cluster_blocks,
        cache_bytes=int(HELD_BY_L2 * cache) if cache else model.cache_bytes,
    )


def model_of(device: Device) -> Processor:
    """The model of `device`, with what `bppsa-bench calibrate` measured of a GPU."""
    model = built_in(device)
    measured = measured_fields(device.name) if isinstance(model, GpuModel) else None
    return model if measured is None else replace(model, **measured, calibrated=True)


def version_of_model(device: Device) -> Hashable:
    """What `model_of` follows from beside the device and its workers: of a GPU the shared memory of a block
    and the file of its calibration."""
    shared = device.shared_bytes
    return None if shared is None else (shared, calibration_version(device.name))
