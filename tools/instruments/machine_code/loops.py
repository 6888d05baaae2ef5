"""The loops of a kernel's reached code, and the one that its time goes to."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from bppsa_cupy.tools.instruments.machine_code.flow import Flow
from bppsa_cupy.tools.instruments.machine_code.instructions import Instruction

#: Arithmetic on reals.
REAL = frozenset("FFMA FADD FMUL DFMA DADD DMUL MUFU HFMA2 FSETP FSEL FMNMX DSETP".split())


@dataclass(frozen=True)
class Loop:
    """A natural loop.

    header  the number of its first block
    blocks  those of its blocks, by the numbers of their first instructions
    depth   1 for a loop inside of no other
    inner   whether it holds no other loop
    """

    header: int
    blocks: frozenset[int]
    depth: int
    inner: bool


def find_loops(flow: Flow) -> list[Loop]:
    """Every natural loop of the reached blocks; those that share a header are one."""
    above = _dominators(flow)
    before: dict[int, list[int]] = defaultdict(list)
    for number, block in flow.blocks.items():
        for follower in block.follows:
            before[follower].append(number)
    bodies: dict[int, set[int]] = {}
    for number, block in flow.blocks.items():
        for header in block.follows:
            if header in above[number]:
                body, waiting = bodies.setdefault(header, {header}), [number]
                while waiting:
                    one = waiting.pop()
                    if one not in body:
                        body.add(one)
                        waiting += before[one]
    return [
        Loop(
            header,
            frozenset(body),
            sum(header in other for other in bodies.values()),
            not any(other != header and other in body for other in bodies),
        )
        for header, body in sorted(bodies.items())
    ]


def _dominators(flow: Flow) -> dict[int, set[int]]:
    """The blocks that every way from the start to a block passes, itself included."""
    order, seen = [], set()
    stack = [(0, iter(flow.blocks[0].follows))]
    seen.add(0)
    while stack:
        number, followers = stack[-1]
        for follower in followers:
            if follower not in seen:
                seen.add(follower)
                stack.append((follower, iter(flow.blocks[follower].follows)))
                break
        else:
            order.append(number)
            stack.pop()
    order.reverse()
    before: dict[int, list[int]] = defaultdict(list)
    for number in order:
        for follower in flow.blocks[number].follows:
            before[follower].append(number)
    above: dict[int, set[int]] = {number: set(order) for number in order}
    above[0] = {0}
    changed = True
    while changed:
        changed = False
        for number in order[1:]:
            common = set.intersection(*(above[one] for one in before[number])) | {number}
            if common != above[number]:
                above[number], changed = common, True
    return above


def body(flow: Flow, loop: Loop) -> list[int]:
    """The numbers of a round's instructions, in their order: both sides of every branch, as a warp takes
    them whose lanes differ; without blocks that call a function where a round can go without it, and without
    blocks after the branch that closes the loop, where the compiler puts what is rare."""
    last = max(number for number in loop.blocks if loop.header in flow.blocks[number].follows)
    taken = sorted(number for number in loop.blocks if number <= last)
    rare = {number for number in taken if _calls(flow, number) and not _needed(flow, loop, number)}
    return [k for number in taken if number not in rare for k in flow.blocks[number].numbers()]


def _calls(flow: Flow, number: int) -> bool:
    return any(flow.code.instructions[k].calls for k in flow.blocks[number].numbers())


def _needed(flow: Flow, loop: Loop, without: int) -> bool:
    """Whether no round goes without a block."""
    seen, waiting = {loop.header}, [loop.header]
    if without == loop.header:
        return True
    while waiting:
        for follower in flow.blocks[waiting.pop()].follows:
            if follower == loop.header:
                return False
            if follower in loop.blocks and follower not in seen and follower != without:
                seen.add(follower)
                waiting.append(follower)
    return True


def hot_loop(flow: Flow, trips: int | None = None, loading: bool = False) -> list[int]:
    """The instructions, by number, of a round of the innermost loop with the deepest nesting; of those, the
    one with the most arithmetic on reals, then the most instructions; of loops with as much arithmetic, most
    of it on the same lines, the one with the fewest instructions, as others ask at each step whether it is
    left. All that is reached, once, of a kernel without a loop.

    trips  take the smallest loop around that one which stores to global memory, with `trips` steps of the
           inner one in its place, and other inner loops once
    loading  take the innermost loop with the most loads of global memory, however deep it is
    """

    def weight(loop: Loop) -> tuple[int, int, int]:
        found = [flow.code.instructions[k].name for k in body(flow, loop)]
        return found.count("LDG") if loading else loop.depth, _reals(flow, loop), len(found)

    loops = find_loops(flow)
    hot = max((loop for loop in loops if loop.inner), key=weight, default=None)
    if hot is None:
        return [k for number in sorted(flow.blocks) for k in flow.blocks[number].numbers()]
    hot = min(_copies(flow, loops, hot), key=lambda loop: len(body(flow, loop)))
    if trips is None:
        return body(flow, hot)
    around = sorted((loop for loop in loops if loop.blocks >= hot.blocks), key=lambda loop: len(loop.blocks))
    chosen = next((loop for loop in around if _stores(flow, loop)), hot)
    return _with_rounds(flow, loops, chosen, _lines(flow, hot), trips)


def _copies(flow: Flow, loops: list[Loop], hot: Loop) -> list[Loop]:
    """A loop, and the others as deep that share most lines of arithmetic with it and have as much of it."""
    lines, found = _lines(flow, hot), [hot]
    for loop in loops:
        others = _lines(flow, loop)
        alike = loop != hot and loop.inner and loop.depth == hot.depth
        as_much = 10 * _reals(flow, loop) >= 9 * _reals(flow, hot)
        if alike and as_much and 2 * len(lines & others) > len(lines | others):
            found.append(loop)
    return found


def _reals(flow: Flow, loop: Loop) -> int:
    return sum(flow.code.instructions[k].name in REAL for k in body(flow, loop))


def _stores(flow: Flow, loop: Loop) -> bool:
    return any(flow.code.instructions[k].name == "STG" for k in body(flow, loop))


def _lines(flow: Flow, loop: Loop) -> set[int]:
    """The lines of a loop's arithmetic on reals, which its copies share."""
    found = (flow.code.instructions[k] for k in body(flow, loop))
    return {one.line for one in found if one.name in REAL}


def _with_rounds(flow: Flow, loops: list[Loop], chosen: Loop, lines: set[int], trips: int) -> list[int]:
    """A round of a loop with the rounds of those inside: `trips` steps of each that has these lines, where
    its copies of fewer steps a round take what is left over."""
    inside = [loop for loop in loops if loop.blocks < chosen.blocks]
    direct = [one for one in inside if not any(one.blocks < other.blocks for other in inside)]
    rounds = {loop.header: _with_rounds(flow, loops, loop, lines, trips) for loop in direct}
    steps = {
        loop.header: steps_of(flow.code.instructions[k] for k in rounds[loop.header])
        for loop in direct
        if loop.inner and _lines(flow, loop) & lines
    }
    most = max(steps.values(), default=1)
    for header, count in steps.items():
        rounds[header] *= trips // most if count == most else trips % most // count
    numbers: list[int] = []
    for number in body(flow, chosen):
        within = next((loop for loop in direct if flow.block_of(number) in loop.blocks), None)
        if within is None:
            numbers.append(number)
        elif number == within.header:
            numbers += rounds[number]
    return numbers


def steps_of(instructions: Iterable[Instruction]) -> int:
    """How many steps a round of a loop takes, where the compiler put several copies of one after another:
    the greatest number that divides the copies of every line which stores, exchanges or waits for others (a
    barrier of a warp leaves a NOP); without such lines, of every line that loads."""
    copies = Counter((one.name, one.line) for one in instructions)
    for names in (("STG", "STS", "SHFL", "BAR", "WARPSYNC", "NOP"), ("LDG",), ("LDS",)):
        found = [count for (name, _), count in copies.items() if name in names]
        if found:
            return math.gcd(*found)
    return 1
