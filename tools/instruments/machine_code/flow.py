"""Which instructions of a kernel are reached for given arguments, and what is known of registers there.

A kernel is compiled for every size; the branches that its scalar arguments decide lead to the code that runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from bppsa_cupy.tools.instruments.machine_code.disassembly import Disassembly
from bppsa_cupy.tools.instruments.machine_code.instructions import Instruction
from bppsa_cupy.tools.instruments.machine_code.lanes import ALL, UNIFORM, Value, is_uniform
from bppsa_cupy.tools.instruments.machine_code.rules import execute
from bppsa_cupy.tools.instruments.machine_code.state import State, results

#: Instructions beside branches after which the next one need not be reached.
ENDS = frozenset({"EXIT", "RET", "KILL"})
#: Modifiers of branches that lead to code for lanes that have drifted apart at a barrier of their warp:
#: it joins them again and returns, and is not followed.
JOINING = frozenset({"DIV", "CONV"})


@dataclass
class Block:
    """Instructions [first, last], run from the first to the last; `follows` holds the blocks after it."""

    first: int
    last: int
    follows: list[int] = field(default_factory=list)

    def numbers(self) -> range:
        """Its instructions."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Access:
    """A load from or a store to global memory: how lanes lie, None where that is not known."""

    address: Value | None
    active: np.ndarray


@dataclass(frozen=True)
class Flow:
    """The reached part of a kernel.

    blocks    by the number of their first instruction
    accesses  by the number of the instruction
    idle      the numbers of instructions that no lane takes part in
    """

    code: Disassembly
    blocks: dict[int, Block]
    accesses: dict[int, Access]
    idle: set[int]

    def block_of(self, number: int) -> int:
        """The block of an instruction."""
        return next(first for first, block in self.blocks.items() if first <= number <= block.last)


@dataclass
class _Search:
    """The way through a kernel: blocks that were met, and what was known where."""

    code: Disassembly
    starts: set[int]
    callees: Mapping[str, tuple[set[str], set[str]]]
    blocks: dict[int, Block] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    active: dict[int, np.ndarray] = field(default_factory=dict)
    accesses: dict[int, Access] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)

    def enter(self, number: int, lanes: np.ndarray, state: State) -> bool:
        """Whether a block that is entered once more must be run again."""
        if number not in self.states:
            self.states[number], self.active[number] = state.copy(), lanes
            return True
        self.states[number], less = self.states[number].met(state)
        joined = self.active[number] | lanes
        more = bool((joined != self.active[number]).any())
        self.active[number] = joined
        return less or more

    def run(self, first: int) -> Iterator[tuple[int, np.ndarray, State]]:
        """Run a block; the blocks after it, with the lanes that go there and what is known then."""
        state, lanes, index = self.states[first].copy(), self.active[first], first
        block = self.blocks.setdefault(first, Block(first, first))
        while True:
            instruction = self.code.instructions[index]
            guard = state.guard(instruction)
            taken = lanes if guard is None else lanes & guard
            self._note(index, instruction, state, taken)
            block.last, index = index, index + 1
            jumps = _jumps(instruction)
            if jumps and instruction.branches and taken.any():
                yield self.code.index_of(instruction.target), taken, state
            if jumps or index in self.starts:
                left = lanes if guard is None or not jumps else lanes & ~guard
                if left.any() and index < len(self.code.instructions):
                    yield index, left, state
                return

    def _note(self, index: int, instruction: Instruction, state: State, taken: np.ndarray) -> None:
        if instruction.name in ("LDG", "LDGSTS", "STG"):
            self.accesses[index] = Access(state.address(instruction), taken)
        (self.idle.discard if taken.any() else self.idle.add)(index)
        if instruction.calls:
            _call(state, self.callees[instruction.target])
        else:
            execute(state, instruction)


def reach(code: Disassembly, constants: Mapping[int, Value]) -> Flow:
    """Follow a kernel from its first instruction with what constant bank 0 holds."""
    search = _Search(code, _starts(code), _callees(code))
    search.enter(0, ALL, State(constants))
    waiting = [0]
    while waiting:
        number = heapq.heappop(waiting)
        follows: list[int] = []
        for follower, lanes, state in search.run(number):
            follows.append(follower)
            if search.enter(follower, lanes, state) and follower not in waiting:
                heapq.heappush(waiting, follower)
        search.blocks[number].follows = sorted(set(follows))
    return Flow(code, search.blocks, search.accesses, search.idle)


def _jumps(instruction: Instruction) -> bool:
    """Whether the next instruction need not be reached after it."""
    return instruction.name in ENDS or (instruction.branches and not instruction.modifiers & JOINING)


def _starts(code: Disassembly) -> set[int]:
    """The first instructions of blocks: those that labels name, and those after jumps."""
    behind = {k + 1 for k, i in enumerate(code.instructions) if _jumps(i)}
    return {0} | set(code.labels.values()) | behind


def _callees(code: Disassembly) -> dict[str, tuple[set[str], set[str]]]:
    """Registers that the kernel's own functions take and write, by label."""
    found = {}
    for label in {i.target for i in code.instructions if i.calls}:
        taken: set[str] = set()
        written: set[str] = set()
        for instruction in code.instructions[code.labels.get(label, len(code.instructions)) :]:
            if instruction.name == "RET":
                break
            registers, predicates, count = results(instruction)
            taken |= {o.lstrip("-~|") for o in instruction.operands[count:]} - written
            written |= {*registers, *predicates}
        found[label] = (taken, written)
    return found


def _call(state: State, callee: tuple[set[str], set[str]]) -> None:
    """What a function leaves: one number in every lane where all it takes is one."""
    taken, written = callee
    inputs = [state.value(name) for name in taken if name.startswith("R") and name[1:].isdigit()]
    same = all(is_uniform(value) for value in inputs)
    for name in written:
        state.predicates.pop(name, None)
        if name.startswith(("R", "UR")):
            state.put(name, UNIFORM if same else None, ALL)
