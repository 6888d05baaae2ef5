"""Faults of kernels' CUDA C++ texts: operators, bounds, numbers, barriers left out, indices off by one.

A fault is made on one line, by its text: binary operators have a space on either side, which tells them from
pointers and templates. Comments, directives, signatures and the sizes of arrays stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mutating.mutant import ROOT, Mutant, numbered

FOLDER = "raw_kernels"
INSTEAD = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+",
    "/": "*", "%": "/", "+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "&&": "||", "||": "&&", "&": "|",
    "|": "&", "^": "|", "<<": ">>", ">>": "<<",
}  # fmt: skip
WORDS = {
    "min": "max",
    "max": "min",
    "true": "false",
    "false": "true",
    "continue": "break",
    "break": "continue",
}
OPERATOR = re.compile(rf"(?<= )({'|'.join(map(re.escape, sorted(INSTEAD, key=len, reverse=True)))})(?= )")
WORD = re.compile(rf"\b({'|'.join(WORDS)})\b")
NUMBER = re.compile(r"(?<![\w.#])\d+(?![\w.])")
REAL = re.compile(r"(?<![\w.])\d+\.\d+(?!\w)")
BARRIER = re.compile(r"__sync(threads|warp)\(\);|wait_for_groups<[^>]*>\(\);|end_group\(\);")
INDEX = re.compile(r"\[([^][]+)\]")
CONDITION = re.compile(r"\bif \(")
#: Lines that declare a type or an array, or are told to the compiler alone.
LEFT_ALONE = re.compile(r"\s*(#|template|typedef|asm|static_assert|using|struct|extern|//)")
DECLARED = re.compile(
    r"\s*(?:const |__shared__ |static )*"
    r"(?:real|int|size_type|double|float|unsigned(?: int)?|index_t|Pack|Fetched<N>)\*? "
    r"(?:\w+(?:\[[^]]*\])*, )*\w+(?:\[[^]]*\])+"
)
#: What the emulator does not define, so that it compiles the other branch.
OF_CUDA = "__CUDA_ARCH__"
SIGNATURE = re.compile(r'extern "C" __global__.*?\)\n\{', re.DOTALL)


def all_faults() -> list[Mutant]:
    """Every fault of every text."""
    paths = sorted(path for kind in ("*.cu", "*.cuh") for path in Path(ROOT, FOLDER).rglob(kind))
    return [mutant for path in paths for mutant in faults_of(path.relative_to(ROOT).as_posix())]


def faults_of(path: str) -> list[Mutant]:
    """Every fault of one file, in the order of its text."""
    text = Path(ROOT, path).read_text(encoding="utf-8")
    signature = SIGNATURE.search(text)
    first, last = (text[:end].count("\n") for end in (signature.span() if signature else (0, 0)))
    found, compiled, taken = [], True, False
    for number, line in enumerate(text.splitlines()):
        if line.startswith("#if"):
            compiled = OF_CUDA not in line or line.startswith("#ifndef")
            taken = compiled and OF_CUDA in line
        elif line.startswith(("#el", "#endif")):
            compiled, taken = not taken or line.startswith("#endif"), taken or not compiled
        if not compiled or LEFT_ALONE.match(line) or (signature and first <= number <= last):
            continue
        code = line.partition("//")[0]
        for start, end, new in _changes(code):
            told = f"{_around(code, start, end)} → {new or 'nothing'}"
            found.append(
                Mutant(path, number + 1, number + 1, line.strip(), told, (start, end, *map(ord, new)))
            )
    return numbered(found)


def mutated(mutant: Mutant) -> str:
    """The text of a file with one fault in it."""
    lines = Path(ROOT, mutant.path).read_text(encoding="utf-8").split("\n")
    start, end, *new = mutant.place
    line = lines[mutant.line - 1]
    lines[mutant.line - 1] = line[:start] + "".join(map(chr, new)) + line[end:]
    return "\n".join(lines)


def _changes(code: str) -> Iterator[tuple[int, int, str]]:
    """Begin and end in a line of what may be changed, and what stands there then."""
    declared = DECLARED.match(code)
    sizes = range(0, declared.end()) if declared else range(0)
    for match in OPERATOR.finditer(code):
        yield *match.span(), INSTEAD[match[0]]
    for match in WORD.finditer(code):
        yield *match.span(), WORDS[match[0]]
    for match in NUMBER.finditer(code):
        if match.start() not in sizes:
            yield *match.span(), str(int(match[0]) + 1)
    for match in REAL.finditer(code):
        yield *match.span(), str(2 * float(match[0]) or 1.0)
    for match in BARRIER.finditer(code):
        yield *match.span(), ";"
    for match in INDEX.finditer(code):
        if match.start() not in sizes and not re.match(r"\s*[&=]?\s*\]", match[0][1:]):
            if not re.search(r"\]\s*(\(|$)", code[match.start() :]) or (
                match.start() and code[match.start() - 1] != " "
            ):
                yield *match.span(1), f"({match[1]}) + 1"
    for match in CONDITION.finditer(code):
        end = _closing(code, match.end() - 1)
        if end:
            yield match.end(), end, f"!({code[match.end() : end]})"


def _closing(code: str, start: int) -> int | None:
    """Where the bracket closes that opens at `start`, if on this line."""
    depth = 0
    for place in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return place
    return None


def _around(code: str, start: int, end: int) -> str:
    """What is changed, with a word on either side, by which a reader finds it."""
    before = re.search(r"\S*\s?$", code[:start])
    after = re.match(r"\s?\S*", code[end:])
    assert before and after
    return f"{before[0]}{code[start:end]}{after[0]}".strip()
