"""Processors in the numbers that passes over time depend on, and the seconds of their parts."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bppsa_cupy.devices import Device
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.frames.steps import MOST_GATES
from bppsa_cupy.timescan.calibration import RATES, SECONDS, measured_fields
from bppsa_cupy.timescan.sizes import WalkSize
from bppsa_cupy.timescan.warps import Warps, reducing, shared_by_chunks, stepping, walking


@dataclass(frozen=True)
class TimeModel(abc.ABC):
    """A processor.

    workers     multiprocessors, or threads
    launch      seconds of a launch
    check       seconds until the host knows whether all boundaries are finite
    calibrated  whether its numbers were measured on the one at hand
    """

    name: str
    workers: int
    launch: float
    check: float
    calibrated: bool = field(default=False, compare=False, kw_only=True)

    @property
    def label(self) -> str:
        """What its predictions are told by."""
        return self.name if self.calibrated else f"{self.name}, uncalibrated"

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
    cache, memory          bytes a second from L2, and from memory, and `cache_bytes` of weights that L2 holds
    following              seconds from a kernel of a graph to one that waits for it
    factors                seconds by those counted, of each kind of kernel (`warps.KINDS`), as "KIND busy" of
                           launches that give all schedulers warps; 1 for others
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
    factors: Mapping[str, float] = field(default_factory=dict)

    @property
    def measured(self) -> dict[str, Any]:
        """What a calibration measures of it, as JSON has it."""
        numbers = {name: getattr(self, name) for name in (*SECONDS, *RATES)}
        return {**numbers, "factors": dict(self.factors)}

    def is_filled(self, warps: Warps) -> bool:
        """Whether some scheduler has more than one of the warps."""
        return warps.number > self.workers * self.schedulers

    def class_of(self, warps: Warps) -> str:
        """What the factor of a launch is called."""
        return f"{warps.kind} busy" if self.is_filled(warps) else warps.kind

    def factor(self, name: str) -> float:
        """The factor of a class of launches, or of the other class of their kind where it alone is known."""
        kind = name.removesuffix(" busy")
        known = (self.factors[one] for one in (name, kind, f"{kind} busy") if one in self.factors)
        return next(known, 1.0)

    def step_seconds(self, warps: Warps) -> float:
        """A step of a launch: a warp's cycles, of as many waves as registers allow, or the instructions that
        the warps of a scheduler issue, if those are more."""
        each = -(-warps.number // (self.workers * self.schedulers))
        resident = self.registers // (32 * warps.registers)
        cycles = max(-(-each // resident) * warps.cycles, each * warps.instructions)
        clock = self.busy if self.is_filled(warps) else self.alone
        return self.factor(self.class_of(warps)) * cycles / clock

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
        rate = self.cache if self.is_cached(size) else self.memory
        return self.following + max(self.step_seconds(warps), read / rate)

    def is_cached(self, size: WalkSize) -> bool:
        """Whether L2 holds the weights from step to step."""
        return size.cell.gates * size.hidden * size.units * size.itemsize <= self.cache_bytes

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
        cycles = max(11.5 * size.state, 0.2 * size.state**2)
        return self.factor("scan") * (chunks - 1) * cycles / self.alone * rounds


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


#: The part of L2 in which weights stay from step to step; the rest is for what else steps read and write.
HELD_BY_L2 = 0.8


def built_in(device: Device) -> TimeModel:
    """The estimates for `device`, with its own number of workers, a GPU's shared memory and its L2. A device
    that has none is taken for the host."""
    model = replace(MODELS.get(device.name, MODELS["host"]), workers=device.workers)
    if not isinstance(model, GpuModel):
        return model
    shared, cache = device.shared_bytes, device.cache_bytes
    return replace(
        model,
        shared_bytes=shared or model.shared_bytes,
        cache_bytes=int(HELD_BY_L2 * cache) if cache else model.cache_bytes,
    )


def model_of(device: Device) -> TimeModel:
    """The model of `device`, with what `bppsa-bench calibrate` measured of a GPU."""
    model = built_in(device)
    measured = measured_fields(device.name) if isinstance(model, GpuModel) else None
    return model if measured is None else replace(model, **measured, calibrated=True)
