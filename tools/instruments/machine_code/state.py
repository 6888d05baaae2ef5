"""What is known of a warp's registers at one place of a kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest

import numpy as np

from bppsa_cupy.tools.instruments.machine_code import lanes
from bppsa_cupy.tools.instruments.machine_code.instructions import Instruction
from bppsa_cupy.tools.instruments.machine_code.lanes import ALL, UNIFORM, ZERO, Known, Mask, Value, constant

REGISTER = re.compile(r"U?R(\d+|Z)$")
PREDICATE = re.compile(r"U?P(\d|T)$")
CONSTANT = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+|RZ)\]$")

#: Instructions that write no register.
WITHOUT = frozenset(
    "STG STS STL LDGSTS LDGDEPBAR DEPBAR BAR BRA BSSY BSYNC BREAK EXIT NOP WARPSYNC CALL RET BMOV "
    "ENDCOLLECTIVE".split()
)
#: Those whose result is two registers whatever their modifiers.
PAIRS = frozenset("DADD DMUL DFMA DMNMX".split())


def next_register(name: str, offset: int) -> str:
    """The register `offset` after one: R5 is 1 after R4, and c[0x0][0x14] after c[0x0][0x10]."""
    if found := CONSTANT.match(name):
        return f"c[0x0][{_offset(found) + 4 * offset:#x}]"
    kind = name.rstrip("0123456789Z")
    return name if name.endswith("Z") else f"{kind}{int(name[len(kind) :]) + offset}"


def _offset(found: re.Match[str]) -> int:
    return 0 if found[1] == "RZ" else int(found[1], 16)


def results(instruction: Instruction) -> tuple[list[str], list[str], int]:
    """The registers and the predicates that an instruction writes, and how many operands say so."""
    if instruction.name in WITHOUT:
        return [], [], 0
    registers: list[str] = []
    predicates: list[str] = []
    for operand in instruction.operands:
        if PREDICATE.match(operand) and len(predicates) < 2:
            predicates.append(operand)
        elif REGISTER.match(operand) and not registers and not instruction.name.endswith("SETP"):
            registers = [next_register(operand, k) for k in range(_count(instruction))]
        else:
            break
    if instruction.name in ("PLOP3", "FCHK", "VOTE", "VOTEU"):
        predicates = predicates[: 2 if instruction.name == "PLOP3" else 1]
    return registers, predicates, bool(registers) + len(predicates)


def _count(instruction: Instruction) -> int:
    name, modifiers = instruction.name.removeprefix("U"), instruction.modifiers
    if name.startswith("LD"):
        return max(1, instruction.width // 4)
    wide = (
        name in PAIRS
        or (name == "IMAD" and "WIDE" in modifiers)
        or (name == "CS2R" and "32" not in modifiers)
        or (name in ("IADD", "IADD3", "MOV", "SEL") and "64" in modifiers)
        or (name == "IMNMX" and bool(modifiers & {"S64", "U64"}))
    )
    converted = (name in ("F2F", "I2F", "MUFU", "FRND") and "F64" in instruction.opcode.split(".")[1:2]) or (
        name == "F2I" and modifiers & {"S64", "U64"}
    )
    return 2 if wide or converted else 1


class State:
    """Registers and predicates by name; what is missing is not known.

    constants  what constant bank 0 holds, by byte offset; what is missing is one unknown number
    """

    def __init__(self, constants: Mapping[int, Value]) -> None:
        self.constants = constants
        self.registers: dict[str, Value] = {}
        self.predicates: dict[str, np.ndarray] = {}

    def copy(self) -> State:
        other = State(self.constants)
        other.registers, other.predicates = dict(self.registers), dict(self.predicates)
        return other

    def met(self, other: State) -> tuple[State, bool]:
        """What holds in both, and whether that is less than what holds in this one."""
        result, less = State(self.constants), False
        for name, value in self.registers.items():
            found = lanes.meet(value, other.registers.get(name))
            if found is not None:
                result.registers[name] = found
            less = less or found is None or found.exact != value.exact
        for name, mask in self.predicates.items():
            kept = lanes.meet_masks(mask, other.predicates.get(name))
            if kept is not None:
                result.predicates[name] = kept
            less = less or kept is None
        return result, less

    def value(self, operand: str) -> Known:
        """The 32 bits of an operand."""
        operand = operand.strip("|")
        if REGISTER.match(operand):
            return ZERO if operand.endswith("Z") else self.registers.get(operand)
        if found := CONSTANT.match(operand):
            return self.constants.get(_offset(found), UNIFORM)
        if operand[:1] in ("-", "~") and not operand[1:2].isdigit():
            inner = lanes.negate(self.value(operand[1:]))
            return inner if operand[0] == "-" else lanes.add(inner, constant(-1))
        try:
            return constant(int(operand, 0))
        except ValueError:
            return UNIFORM if operand[:1].isdigit() or operand[:1] in "-+" else None

    def mask(self, operand: str) -> Mask:
        """The lanes in which a predicate operand holds."""
        name = operand.lstrip("!")
        found = ALL if name in ("PT", "UPT") else self.predicates.get(name)
        return ~found if found is not None and operand[0] == "!" else found

    def guard(self, instruction: Instruction) -> Mask:
        """The lanes in which an instruction is executed."""
        return self.mask(instruction.guard) if instruction.guard else ALL

    def address(self, instruction: Instruction) -> Known:
        """The low 32 bits of the address of a load or store, less what every lane adds alike."""
        text = [o for o in instruction.operands if "[" in o and not o.startswith("c[")][-1]
        total: Known = UNIFORM
        for term in re.findall(r"\[([^\]]*)\]", text)[-1].split("+"):
            name, _, scale = term.partition(".")
            if REGISTER.match(name) and not name.startswith("U"):
                factor = int(scale[1:]) if scale.startswith("X") else 1
                total = lanes.add(total, lanes.multiply(self.value(name), constant(factor)))
        return total

    def put(self, name: str, value: Known, mask: Mask) -> None:
        """Write a register in the lanes of a mask. What is written under a guard that is not known is read
        under it: it counts for how lanes lie to each other, and not as a number that is known."""
        found = lanes.select(mask, value, self.registers.get(name))
        if found is None and value is not None:
            found = Value(value.lanes - value.lanes[0], False)
        value = found
        if value is None or name.endswith("Z"):
            self.registers.pop(name, None)
        else:
            self.registers[name] = value

    def put_mask(self, name: str, value: Mask, mask: Mask) -> None:
        """Write a predicate in the lanes of a mask."""
        before = self.predicates.get(name)
        if mask is None:
            value = lanes.meet_masks(value, before)
        elif not mask.all():
            value = None if value is None or before is None else np.where(mask, value, before)
        if value is None or name.endswith("T"):
            self.predicates.pop(name, None)
        else:
            self.predicates[name] = value

    def write(self, instruction: Instruction, values: list[Known], masks: list[Mask]) -> None:
        """Write an instruction's results; those that are not given are not known."""
        guard = self.guard(instruction)
        if guard is not None and not guard.any():
            return
        registers, predicates, _ = results(instruction)
        for name, value in zip_longest(registers, values[: len(registers)]):
            self.put(name, value, guard)
        for name, mask in zip_longest(predicates, masks[: len(predicates)]):
            self.put_mask(name, mask, guard)
