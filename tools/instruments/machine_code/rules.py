"""What instructions on integers and predicates make of a warp's registers.

Those that are not here, arithmetic on reals among them, give one number in every lane where all they take
does, and nothing that is known elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from bppsa_cupy.tools.instruments.machine_code import lanes
from bppsa_cupy.tools.instruments.machine_code.instructions import Instruction
from bppsa_cupy.tools.instruments.machine_code.lanes import (
    ALL,
    LANES,
    UNIFORM,
    ZERO,
    Known,
    Mask,
    Value,
    constant,
)
from bppsa_cupy.tools.instruments.machine_code.state import (
    CONSTANT,
    PREDICATE,
    REGISTER,
    WITHOUT,
    State,
    next_register,
    results,
)

Made = tuple[list[Known], list[Mask]]
Rule = Callable[[State, Instruction, list[str]], Made]

#: Of a warp of threads that differ in x alone: the first of its block.
SPECIAL = {
    "SR_TID.X": Value(LANES, True),
    "SR_LANEID": Value(LANES, True),
    "SR_TID.Y": ZERO,
    "SR_TID.Z": ZERO,
}
COMPARED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
    "EQ": np.equal, "NE": np.not_equal,
}  # fmt: skip


def execute(state: State, instruction: Instruction) -> None:
    """Make of the state before an instruction that after it."""
    if instruction.name in WITHOUT:
        return
    rule = RULES.get(instruction.name.removeprefix("U"), _unknown)
    _, _, count = results(instruction)
    state.write(instruction, *rule(state, instruction, list(instruction.operands[count:])))


def _uniform(*values: Known) -> Known:
    return UNIFORM if all(lanes.is_uniform(value) for value in values) else None


def _exact(*values: Known) -> bool:
    return all(value is not None and value.exact for value in values)


def _unknown(state: State, instruction: Instruction, sources: list[str]) -> Made:
    if instruction.name.startswith("LD"):
        found = _uniform(state.address(instruction)) if instruction.name == "LDG" else None
    else:
        found = _uniform(*(state.value(s) for s in sources if not s.lstrip("!").startswith(("P", "UP"))))
    return [found] * 4, []


def _move(state: State, instruction: Instruction, sources: list[str]) -> Made:
    source = sources[0]
    if instruction.width == 4 or not (CONSTANT.match(source) or REGISTER.match(source)):
        return [state.value(source)], []
    return [state.value(next_register(source, k)) for k in range(instruction.width // 4)], []


def _special(state: State, instruction: Instruction, sources: list[str]) -> Made:
    if sources[0] == "SRZ":
        return [ZERO, ZERO], []
    return [SPECIAL.get(sources[0], UNIFORM)], []


def _to_uniform(state: State, instruction: Instruction, sources: list[str]) -> Made:
    value = state.value(sources[0])
    if value is None or not value.exact:
        return [UNIFORM], []
    return [constant(int(value.lanes[0]))], []


def _with_carry(state: State, total: Known, masks: list[str]) -> Known:
    """A sum and the carries from below."""
    for operand in masks:
        mask = state.mask(operand)
        if mask is None:
            return _uniform(total)
        total = lanes.add(total, Value(mask.astype(np.uint32), True))
    return total


def _pair(state: State, operand: str) -> tuple[Known, Known]:
    """The lower and the upper half of an operand of 64 bits."""
    if REGISTER.match(operand) or CONSTANT.match(operand):
        return state.value(operand), state.value(next_register(operand, 1))
    if operand[0] == "-" and not operand[1:2].isdigit():
        number = _joined(*_pair(state, operand[1:]))
        return (None, None) if number is None else _parts(np.negative(number))
    low = state.value(operand)
    return low, _sign(low)


def _joined(low: Known, high: Known) -> np.ndarray | None:
    """Both halves as one number, where they are known."""
    if low is None or high is None or not _exact(low, high):
        return None
    return high.lanes.astype(np.uint64) << np.uint64(32) | low.lanes


def _parts(number: np.ndarray) -> tuple[Value, Value]:
    return Value(number.astype(np.uint32), True), Value((number >> np.uint64(32)).astype(np.uint32), True)


def _add_wide(state: State, sources: list[str]) -> Made:
    """A sum of numbers of 64 bits; of those that are not known, how the lower halves lie to each other."""
    pairs = [_pair(state, s) for s in sources if not PREDICATE.match(s.lstrip("!"))]
    numbers = [number for pair in pairs if (number := _joined(*pair)) is not None]
    if len(numbers) == len(pairs):
        return list(_parts(np.add.reduce(np.stack(numbers), axis=0))), []
    return [lanes.add(*(low for low, _ in pairs)), _uniform(*(half for pair in pairs for half in pair))], []


def _add(state: State, instruction: Instruction, sources: list[str]) -> Made:
    if "64" in instruction.modifiers:
        return _add_wide(state, sources)
    values = [state.value(s) for s in sources[:3]]
    total = lanes.add(*values)
    if "X" in instruction.modifiers:
        return [_with_carry(state, total, sources[3:])], []
    negated = any(s[0] in "-~" and not s[1].isdigit() for s in sources[:3])
    return [total], [None if negated else lanes.carry(*values)]


def _multiply_add(state: State, instruction: Instruction, sources: list[str]) -> Made:
    a, b, c = (state.value(s) for s in sources[:3])
    kinds = instruction.modifiers
    if "HI" in kinds:
        return [lanes.add(lanes.high_product(a, b, "U32" not in kinds), c)], []
    low = lanes.add(lanes.multiply(a, b), c)
    if "WIDE" not in kinds:
        return [_with_carry(state, low, sources[3:]) if "X" in kinds else low], []
    paired = REGISTER.match(sources[2]) or CONSTANT.match(sources[2])
    above = state.value(next_register(sources[2], 1)) if paired else _sign(c)
    if not _exact(a, b, c, above):
        return [low, _uniform(a, b, c, above)], []
    passed = lanes.carry(lanes.multiply(a, b), c)
    assert passed is not None
    high = lanes.add(
        lanes.high_product(a, b, "U32" not in kinds), above, Value(passed.astype(np.uint32), True)
    )
    return [low, high], []


def _shifted_add(state: State, instruction: Instruction, sources: list[str]) -> Made:
    a, b = state.value(sources[0]), state.value(sources[1])
    if "HI" not in instruction.modifiers:
        shifted = lanes.multiply(a, constant(1 << int(sources[2], 0)))
        return [lanes.add(shifted, b)], [lanes.carry(shifted, b) if sources[1][0] not in "-~" else None]
    if "SX32" in instruction.modifiers:
        sign, bits, rest = _sign(a), int(sources[2], 0), sources[3:]
    else:
        sign, bits, rest = state.value(sources[2]), int(sources[3], 0), sources[4:]
    high = _funnel(a, sign, 32 - bits, signed=False)
    return [_with_carry(state, lanes.add(high, b), rest)], []


def _sign(value: Known) -> Known:
    if value is None or not value.exact:
        return _uniform(value)
    return Value((value.lanes.view(np.int32) >> 31).view(np.uint32), True)


def _funnel(low: Known, high: Known, right: int, *, signed: bool) -> Known:
    """The low 32 bits of the number (high, low) of 64 bits, shifted right by less than 64."""
    if low is None or high is None or not _exact(low, high):
        return _uniform(low, high)
    number = high.lanes.astype(np.uint64) << np.uint64(32) | low.lanes
    if signed:
        return Value((number.view(np.int64) >> np.int64(right)).astype(np.uint32), True)
    return Value((number >> np.uint64(right)).astype(np.uint32), True)


def _shift(state: State, instruction: Instruction, sources: list[str]) -> Made:
    low, by, high = (state.value(s) for s in sources[:3])
    kinds = instruction.modifiers
    if by is None or not by.exact or not lanes.is_uniform(by):
        return [_uniform(low, by, high)], []
    bits = int(by.lanes[0])
    if "L" in kinds:
        if "HI" not in kinds:
            return [lanes.multiply(low, constant(1 << bits)) if bits < 32 else ZERO], []
        return [_funnel(low, high, 32 - bits, signed=False) if bits <= 32 else None], []
    if "HI" in kinds and kinds & {"U32", "S32"}:
        extended = _sign(high) if "S32" in kinds else ZERO
        return [_funnel(high, extended, min(bits, 32), signed="S32" in kinds)], []
    return [_funnel(low, high, bits, signed="S64" in kinds and bits < 64) if bits < 64 else None], []


def _logic(state: State, instruction: Instruction, sources: list[str]) -> Made:
    values = [state.value(s) for s in sources[:3]]
    if not _exact(*values):
        return [_uniform(*values)], []
    found = lanes.truth_table(int(sources[3], 0), *(v.lanes for v in values if v is not None))
    return [Value(found, True)], [found != 0]


def _decide(function: Callable[..., np.ndarray], *masks: Mask) -> Mask:
    """A function of predicates where it is the same whatever the unknown ones are, lane by lane."""
    choices = [[mask] if mask is not None else [ALL, ~ALL] for mask in masks]
    found = [function(*chosen) for chosen in product(*choices)]
    same = all(np.array_equal(found[0], other) for other in found)
    return found[0] if same else None


def _logic_of_masks(state: State, instruction: Instruction, sources: list[str]) -> Made:
    table = int(sources[3], 0)

    def of(*masks: np.ndarray) -> np.ndarray:
        return lanes.truth_table(table, *(m.astype(np.uint8) * np.uint8(255) for m in masks)) != 0

    return [], [_decide(of, *(state.mask(s) for s in sources[:3]))]


def _compare(state: State, instruction: Instruction, sources: list[str]) -> Made:
    kinds = instruction.opcode.split(".")[1:]
    a, b = state.value(sources[0]), state.value(sources[1])
    found: Mask = None
    if wide := {"S64", "U64"} & set(kinds):
        first, second = (_joined(*_pair(state, s)) for s in sources[:2])
        if first is not None and second is not None:
            view = np.int64 if "S64" in wide else np.uint64
            found = COMPARED[kinds[0]](first.view(view), second.view(view))
    elif a is not None and b is not None and a.exact and b.exact:
        kind = np.uint32 if "U32" in kinds else np.int32
        first, second = a.lanes.view(kind), b.lanes.view(kind)
        found = COMPARED[kinds[0]](first, second)
        if "EX" in kinds:
            below = state.mask(sources[3])
            strict = {"LE": np.less, "GE": np.greater}.get(kinds[0], COMPARED[kinds[0]])
            equal, apart = first == second, strict(first, second)
            found = _decide(lambda low: np.where(equal, low, apart), below)
    combine = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}[
        next(kind for kind in kinds if kind in ("AND", "OR", "XOR"))
    ]
    entering = state.mask(sources[2])
    inverse = None if found is None else ~found
    return [], [_decide(combine, found, entering), _decide(combine, inverse, entering)]


def _select(state: State, instruction: Instruction, sources: list[str]) -> Made:
    mask = state.mask(sources[2])
    wide = "64" in instruction.modifiers
    first, second = (_pair(state, s) if wide else (state.value(s),) for s in sources[:2])
    both = list(zip(first, second, strict=True))
    if mask is None:
        return [_uniform(a, b) if a is not b else a for a, b in both], []
    return [lanes.select(mask, a, b) for a, b in both], []


def _least(state: State, instruction: Instruction, sources: list[str]) -> Made:
    a, b, mask = state.value(sources[0]), state.value(sources[1]), state.mask(sources[2])
    if instruction.modifiers & {"S64", "U64"}:
        return [_uniform(*_pair(state, sources[0]), *_pair(state, sources[1]))] * 2, []
    if a is None or b is None or mask is None or not (a.exact and b.exact):
        return [_uniform(a, b)], []
    kind = np.uint32 if "U32" in instruction.modifiers else np.int32
    pair = a.lanes.view(kind), b.lanes.view(kind)
    return [Value(np.where(mask, np.minimum(*pair), np.maximum(*pair)).view(np.uint32), True)], []


def _halves(state: State, instruction: Instruction, sources: list[str]) -> Made:
    """A constant that is written as two half floats."""
    if sources[:2] != ["-RZ", "RZ"]:
        return _unknown(state, instruction, sources)
    try:
        high, low = (int(np.float16(float(s)).view(np.uint16)) for s in sources[2:4])
    except ValueError:
        return [UNIFORM], []
    return [constant(high << 16 | low)], []


RULES: dict[str, Rule] = {
    "MOV": _move, "LDC": _move, "LDCU": _move, "S2R": _special, "S2UR": _special, "CS2R": _special,
    "R2UR": _to_uniform, "IADD": _add, "IADD3": _add, "VIADD": _add, "IMAD": _multiply_add,
    "LEA": _shifted_add, "SHF": _shift, "LOP3": _logic, "PLOP3": _logic_of_masks, "ISETP": _compare,
    "SEL": _select, "IMNMX": _least, "VIMNMX": _least, "HFMA2": _halves,
}  # fmt: skip
