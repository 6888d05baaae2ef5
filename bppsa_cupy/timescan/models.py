"""Processors in the numbers that passes over time depend on, and the seconds of their parts."""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace

from bppsa_cupy.devices import Device
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.frames.steps import MOST_GATES
from bppsa_cupy.timescan.sizes import WalkSize
from bppsa_cupy.timescan.warps import Warps, reducing, shared_by_chunks, stepping, walking


@dataclass(frozen=True)
class TimeModel(abc.ABC):
    """A processor. None of its numbers was measured on the one at hand.

    workers  multiprocessors, or threads
    launch   seconds of a launch
    check    seconds until the host knows whether all boundaries are finite
    """

    name: str
    workers: int
    launch: float
    check: float

    @property
    def label(self) -> str:
        """What its predictions are told by."""
        return f"{self.name}, uncalibrated"

    @abc.abstractmethod
    def walk_seconds(self, size: WalkSize, verb: str, chunks: int) -> float:
        """All chunks at once step by step, "forward" or "backward"."""

    def goes_by_steps(self, size: WalkSize, verb: str) -> bool:
        """Whether a whole sequence is walked by a launch a step."""
        return False

    def lack(self, size: WalkSize, verb: str, chunk: int) -> str | None:
        """Which block of a walk by chunks of `chunk` steps takes more shared memory than there is, and by how
        much; None where all have what they take. One chunk is a walk without reduction and scan."""
        return None

    @abc.abstractmethod
    def reduce_seconds(self, size: WalkSize, chunk: int) -> float:
        """The products of the Jacobians of every chunk but the first."""

    @abc.abstractmethod
    def scan_seconds(self, size: WalkSize, chunks: int) -> float:
        """The values at the boundaries of chunks."""


@dataclass(frozen=True)
class HostModel(TimeModel):
    """A processor that runs the twins.

    serial_step  seconds of a step of a walk whatever its size
    serial_rate  multiply-adds a second of one thread's walk, each of `lanes` samples at once
    reduce_rate, scan_rate  those of its reduction, and of its scan over boundaries
    """

    serial_step: float
    serial_rate: float
    lanes: int
    reduce_rate: float
    scan_rate: float

    def walk_seconds(self, size: WalkSize, verb: str, chunks: int) -> float:
        work = size.cell.gates * size.units**2
        walks = -(-chunks * size.heads * -(-size.batch // self.lanes) // self.workers)
        return size.chunks(chunks) * walks * (self.serial_step + work / self.serial_rate) + self.launch

    def reduce_seconds(self, size: WalkSize, chunk: int) -> float:
        # A step's Jacobian is formed first.
        maps, work = (size.chunks(chunk) - 1) * size.walks, size.state * size.units * (size.units + 16)
        return chunk * -(-maps // self.workers) * work / self.reduce_rate

    def scan_seconds(self, size: WalkSize, chunks: int) -> float:
        rounds = -(-size.walks // (8 * self.workers))
        return (chunks - 1) * size.state**2 / self.scan_rate * rounds


@dataclass(frozen=True)
class GpuModel(TimeModel):
    """A GPU, whose kernels take what their machine code says (`warps`).

    schedulers, registers  of a multiprocessor, and of a scheduler
    shared_bytes           of a block, at most
    alone, busy            clocks in Hz with little to do, and when all schedulers have warps
    cache, memory          bytes a second from L2, and from memory, and `cache_bytes` that L2 holds
    following              seconds from a kernel of a graph to one that waits for it
    """

    schedulers: int
    registers: int
    shared_bytes: int
    alone: float
    busy: float
    cache: float
    memory: float
    cache_bytes: int
    following: float

    def step_seconds(self, warps: Warps) -> float:
        """A step of a launch: a warp's cycles, of as many waves as registers allow, or the instructions that
        the warps of a scheduler issue, if those are more."""
        each = -(-warps.number // (self.workers * self.schedulers))
        resident = max(1, self.registers // (32 * warps.registers))
        cycles = max(-(-each // resident) * warps.cycles, each * warps.instructions)
        return cycles / (self.busy if warps.number > self.workers * self.schedulers else self.alone)

    def walk_seconds(self, size: WalkSize, verb: str, chunks: int) -> float:
        if chunks == 1 and self.goes_by_steps(size, verb):
            return size.steps * self.single_step_seconds(size, verb) + self.launch
        return size.chunks(chunks) * self.walk_in_blocks_seconds(size, verb, chunks) + self.launch

    def walk_in_blocks_seconds(self, size: WalkSize, verb: str, chunks: int = 1) -> float:
        """A step of a walk whose blocks go through all steps."""
        return self.step_seconds(walking(size, verb, chunks, self.shared_bytes))

    def single_step_seconds(self, size: WalkSize, verb: str) -> float:
        """A step that is a launch: its warps, or what they read, if that takes longer."""
        warps, read = stepping(size, verb)
        weights = size.cell.gates * size.hidden * size.units * size.itemsize
        rate = self.cache if weights <= self.cache_bytes else self.memory
        return self.following + max(self.step_seconds(warps), read / rate)

    def goes_by_steps(self, size: WalkSize, verb: str) -> bool:
        if size.cell.gates > MOST_GATES or not size.walks:
            return False
        if self.lack(size, verb, max(1, size.steps)):
            return True
        return self.single_step_seconds(size, verb) < self.walk_in_blocks_seconds(size, verb)

    def lack(self, size: WalkSize, verb: str, chunk: int) -> str | None:
        there = self.shared_bytes
        for kernel, needed in shared_by_chunks(size, verb, chunk, there):
            if needed > there:
                return f"a block of {kernel} takes {needed} bytes of shared memory, {there} are there"
        return None

    def reduce_seconds(self, size: WalkSize, chunk: int) -> float:
        return chunk * self.step_seconds(reducing(size, chunk, self.shared_bytes))

    def scan_seconds(self, size: WalkSize, chunks: int) -> float:
        # A block takes a walk: to 40 elements as long as a product in registers, beyond as its map is read.
        rounds = -(-size.walks // (8 * self.workers))
        return (chunks - 1) * max(11.5 * size.state, 0.2 * size.state**2) / self.alone * rounds


H200 = GpuModel(
    name="cuda",
    workers=132,
    launch=5e-6,
    check=2e-5,
    schedulers=4,
    registers=16384,
    shared_bytes=ARCHITECTURES["sm_90"].shared_bytes,
    alone=1.98e9,
    busy=1.7e9,
    cache=5.5e12,
    memory=4.3e12,
    cache_bytes=40 << 20,
    following=1.2e-6,
)

#: `host`: 2 cores at some 4 GHz with registers of 16 float32.
MODELS: dict[str, TimeModel] = {
    "cuda": H200,
    "host": HostModel(
        name="host",
        workers=2,
        launch=5e-6,
        check=0.0,
        serial_step=1e-8,
        serial_rate=3.8e9,
        lanes=16,
        reduce_rate=8e9,
        scan_rate=1.5e9,
    ),
}


def model_of(device: Device) -> TimeModel:
    """The model of `device`, with its own number of workers, and of a GPU its shared memory; one without its
    own is taken for the host."""
    model = replace(MODELS.get(device.name, MODELS["host"]), workers=device.workers)
    if isinstance(model, GpuModel) and device.shared_bytes is not None:
        return replace(model, shared_bytes=device.shared_bytes)
    return model
