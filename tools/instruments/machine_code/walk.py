"""The time of a loop for one warp that is alone: instructions issue in order, as their control words say.

What it leaves out: other warps, bank conflicts, queues of memory, instruction fetch. Differences between two
versions of a kernel can be trusted, and cycles to some 25 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bppsa_cupy.tools.instruments.machine_code.instructions import Instruction

#: Cycles until a result is there, of instructions that tell it by a scoreboard. Memory: Luo et al.,
#: "Benchmarking and dissecting the Nvidia Hopper GPU architecture" (2024), tables for A100 and H100, and Jia
#: et al., "Dissecting the NVidia Turing T4 GPU via microbenchmarking" (2019) for sm_75. The others are
#: assumptions, to be measured on a device.
COMMON = {
    "MUFU": 24, "LDC": 32, "ULDC": 12, "LDCU": 12, "S2R": 25, "S2UR": 25, "F2I": 24, "I2F": 24, "F2F": 24,
    "FRND": 24, "SHFL": 24, "VOTE": 20, "DADD": 16, "DMUL": 16, "DFMA": 16, "DSETP": 16, "POPC": 20, "BAR": 0,
}  # fmt: skip
MEMORY = {
    "sm_75": {"shared": 19, "L1": 32, "L2": 188, "memory": 434},
    "sm_80": {"shared": 29, "L1": 38, "L2": 262, "memory": 466},
    "sm_90": {"shared": 29, "L1": 41, "L2": 263, "memory": 479},
}
#: Where a load from global memory finds its value.
PLACES = ("L1", "L2", "memory")
#: Of another result, and until operands are read; more for each 16 bytes that a lane loads at once.
OTHER, OPERANDS, WIDE = 20, 8, 4
#: Cycles that a branch, the joining of a warp's lanes and a barrier cost beside their stall counts.
BESIDE = {"BRA": 5, "BSYNC": 8, "WARPSYNC": 8, "BAR": 25}

#: Rounds until the time of one is the same, and rounds that are counted.
SETTLING, COUNTED = 4, 4


class Issue(NamedTuple):
    """When an instruction issues, in cycles from its round's start, and how long it `waited` for what."""

    time: float
    waited: float
    cause: str


class Walked(NamedTuple):
    """A round of a loop in its steady state: its cycles, and those of them that each kind of instruction was
    waited for, or that it takes beside its stall count."""

    cycles: float
    waits: Mapping[str, float]


def memory_latencies(target: str) -> Mapping[str, int]:
    """Those of `target`, else of the nearest one before it."""
    known = [name for name in MEMORY if int(name[3:]) <= int(target[3:])]
    return MEMORY[max(known, key=lambda name: int(name[3:]))]


def walk(instructions: Sequence[Instruction], taken: Sequence[bool], target: str, place: str) -> Walked:
    """Walk a loop's round again and again until its time is the same.

    taken  of each instruction whether some lane takes part: others issue and do nothing
    place  where loads from global memory find their values: one of PLACES
    """
    walker = _Walker(memory_latencies(target), place)
    for _ in range(SETTLING):
        walker.round(instructions, taken)
    start = walker.time
    waits: dict[str, float] = defaultdict(float)
    for _ in range(COUNTED):
        for one, works, issue in zip(instructions, taken, walker.round(instructions, taken), strict=True):
            waits[issue.cause] += issue.waited
            waits[one.name] += BESIDE.get(one.name, 0) if works else 0
    kept = {name: wait / COUNTED for name, wait in sorted(waits.items()) if wait}
    return Walked((walker.time - start) / COUNTED, kept)


def issues(
    instructions: Sequence[Instruction], taken: Sequence[bool], target: str, place: str
) -> list[Issue]:
    """When each instruction of a round issues, in the steady state; arguments as `walk` takes them."""
    walker = _Walker(memory_latencies(target), place)
    for _ in range(SETTLING):
        walker.round(instructions, taken)
    return walker.round(instructions, taken)


class _Walker:
    """One warp on its way: the time, and when each scoreboard is released, by what."""

    def __init__(self, memory: Mapping[str, int], place: str) -> None:
        self._memory, self._place = memory, place
        self.time = 0.0
        self._ready, self._cause = [0.0] * 6, [""] * 6
        #: When groups of copies to shared memory are there, and the group that is open.
        self._groups: list[float] = []
        self._open = 0.0

    def round(self, instructions: Sequence[Instruction], taken: Sequence[bool]) -> list[Issue]:
        start = self.time
        found: list[Issue] = []
        for one, works in zip(instructions, taken, strict=True):
            until, cause = max(
                ((self._ready[k], self._cause[k]) for k in one.control.waits), default=(0.0, "")
            )
            if one.name == "DEPBAR":
                until, cause = self._group(one), "LDGSTS"
            waited = max(until - self.time, 0.0)
            self.time += waited
            found.append(Issue(self.time - start, waited, cause if waited else ""))
            self._copy(one)
            self._release(one.control.written, self._latency(one) if works else 0, one.name)
            self._release(one.control.read, OPERANDS, f"{one.name} operands")
            self.time += max(one.control.stall, 1) + (BESIDE.get(one.name, 0) if works else 0)
        return found

    def _copy(self, one: Instruction) -> None:
        """Asynchronous copies from global to shared memory, in groups."""
        if one.name == "LDGSTS":
            self._open = max(self._open, self.time + self._memory[self._place])
        elif one.name == "LDGDEPBAR":
            self._groups.append(self._open)

    def _group(self, one: Instruction) -> float:
        """When all groups but the last few that a wait leaves are there."""
        left = int(one.operands[1], 0)
        return max(self._groups[: len(self._groups) - left], default=0.0)

    def _release(self, scoreboard: int | None, latency: int, cause: str) -> None:
        if scoreboard is not None and self.time + latency > self._ready[scoreboard]:
            self._ready[scoreboard], self._cause[scoreboard] = self.time + latency, cause

    def _latency(self, one: Instruction) -> int:
        if one.name in ("LDG", "LD", "LDL"):
            return self._memory[self._place]
        if one.name == "LDS":
            return self._memory["shared"] + (WIDE if one.width == 16 else 0)
        return COMMON.get(one.name, OTHER)
