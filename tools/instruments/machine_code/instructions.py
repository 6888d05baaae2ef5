"""One machine instruction of sm_70 and later: its words, and the fields of its control word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

#: Targets whose control words are read as `Control` says. NVIDIA does not document them; public
#: disassemblers agree on the fields for sm_70 to sm_90, and `test_machine_code.py` checks on every
#: target here that what a load writes is read only after a wait for the scoreboard it names.
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_120")

GUARD = re.compile(r"@(!?U?P[\dT]+)\s+")
TARGET = re.compile(r"`\((\S+)\)")


class Control(NamedTuple):
    """What the compiler says of an instruction's timing.

    stall    cycles until the warp's next instruction may issue
    written  the scoreboard, 0 to 5, that is released when the result is there; None without one
    read     the scoreboard that is released when the operands are read; None without one
    waits    the scoreboards that must be released before it issues
    """

    stall: int
    written: int | None
    read: int | None
    waits: tuple[int, ...]


def control_of(word: int) -> Control:
    """The control fields of an instruction's second 64-bit word: from bit 41 on the stall count (4 bits),
    yield (1), the scoreboard of the result (3, 7 is none), that of the operands (3), and a bit for each
    scoreboard that is waited for (6)."""
    bits = word >> 41
    written, read, waits = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
    return Control(
        bits & 15,
        None if written == 7 else written,
        None if read == 7 else read,
        tuple(k for k in range(6) if waits >> k & 1),
    )


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    address   bytes from the start of its section
    guard     the predicate it is executed under, "P0" or "!P0"; "" without one
    opcode    with its modifiers, "LDG.E.128"
    operands  as nvdisasm writes them, results first
    target    the label that it names, of a branch or call; "" without one
    line      of the CUDA C++ text it was made of; 0 where that is not known
    """

    address: int
    guard: str
    opcode: str
    operands: tuple[str, ...]
    target: str
    line: int
    control: Control

    @cached_property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".")[0]

    @cached_property
    def modifiers(self) -> frozenset[str]:
        return frozenset(self.opcode.split(".")[1:])

    @property
    def calls(self) -> bool:
        """Whether it calls a function, which returns; a call of a label inside the kernel is a branch."""
        return self.name == "CALL" and not self.target.startswith(".")

    @property
    def branches(self) -> bool:
        """Whether lanes go on at its target."""
        return self.name == "BRA" or (self.name == "CALL" and not self.calls)

    @cached_property
    def width(self) -> int:
        """Bytes a thread that a load or store moves."""
        for modifier, width in (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
            if modifier in self.modifiers:
                return width
        return 4


def read_instruction(address: int, text: str, line: int, word: int) -> Instruction:
    """The instruction of a line of nvdisasm, `@!P0 BRA `(.L_x_0)`, and of its second word. A predicate that a
    branch has as an operand, `BRA.U UP0, `(.L_x_0)`, is its guard too."""
    text = text.strip()
    guard = GUARD.match(text)
    rest = text[guard.end() :] if guard else text
    opcode, _, operands = rest.partition(" ")
    target = TARGET.search(operands)
    parts = tuple(part.strip().replace(".reuse", "") for part in operands.split(",")) if operands else ()
    under = guard[1] if guard else parts[0] if opcode.startswith("BRA.U") else ""
    return Instruction(address, under, opcode, parts, target[1] if target else "", line, control_of(word))
