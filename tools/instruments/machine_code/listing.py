"""A hot loop, instruction by instruction, with the cycle at which each issues."""

from __future__ import annotations

from bppsa_cupy.tools.instruments.machine_code.measure import Built
from bppsa_cupy.tools.instruments.machine_code.walk import issues


def listing(built: Built, place: str) -> list[str]:
    """A line an instruction of a round in its steady state: the cycle from the round's start, the cycles that
    it waited, and what for. A line of the CUDA C++ text, with its number, goes before what was made of it.

    place  where loads from global memory find their values
    """
    source, line = built.source.splitlines(), 0
    lines = [f"{built.kernel.name} {built.target} {built.variant.real}, loads from {place}"]
    found, taken, _ = built.loop
    for one, works, issue in zip(found, taken, issues(found, taken, built.target, place), strict=True):
        if one.line != line:
            line = one.line
            lines.append(f"{line:30}: {source[line - 1].strip() if line <= len(source) else ''}")
        wait = f"{issue.waited:5.0f} {issue.cause}" if issue.waited else ""
        guard = f"@{one.guard} " if one.guard else ""
        idle = "" if works else "  (no lane)"
        text = f"{guard}{one.opcode} {', '.join(one.operands)}{idle}"
        lines.append(f"{issue.time:7.0f} {wait:16}{one.address:#07x} {text}")
    return lines
