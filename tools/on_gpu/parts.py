"""The parts of `make gpu`: commands, and how long each may take."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Seconds of everything.
TOTAL = 600.0

#: Kernels that are profiled, and those that are sanitized: recurrent ones, convolutions, pooling.
PROFILED = "(rnn_tanh_(forward|backward|reduce)|chunk_scan|newton_scan)"
SANITIZED = "((rnn|gru|lstm|ctrnn|mgu|ugrnn|peephole).*|.*_scan|conv2d.*|.*pool2d.*)"
#: What a profile is of.
SECTIONS = (
    "SpeedOfLight", "LaunchStats", "Occupancy", "SchedulerStats", "WarpStateStats", "MemoryWorkloadAnalysis"
)  # fmt: skip
#: pytest's options: the versions of a machine's packages may warn of what the tests' own do not, and packages
#: that it lacks, or a module of tests that fails to load, are not to keep other tests from running.
PYTEST = (
    "-m", "gpu", "-q", "-W", "default", "-p", "no:cacheprovider", "-p", "missing_packages",
    "--continue-on-collection-errors", "tests",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One command and its limit in seconds.

    command  run in a folder that has the package and the tests; {out} in it stands for the folder of results
    missing  what it needs and the machine lacks; None where it has all
    output   the suffix of the file that what it prints goes to: "jsonl" of programs that print JSON a line
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    missing: str | None = None
    output: str = "txt"


def make_parts() -> list[Part]:
    """All parts in the order of what they teach: five minutes of programs that print JSON a line, then the
    tests, and kernels under compute-sanitizer."""
    twins = (sys.executable, "tests/kernels_on_device.py")
    profiled = program(
        "times", "--like", PROFILED, "--hidden", "20", "--steps", "1000", "--processes", "1", "--once"
    )
    sections = [word for section in SECTIONS for word in ("--section", section)]
    sanitized = (*twins, "--small", "--like", SANITIZED, "--dtypes", "float32", "--processes", "1")
    pytest = (sys.executable, "-m", "pytest", *workers(), *PYTEST)
    return [
        Part("machine", program("machine"), 15, output="jsonl"),
        Part("kernels", twins, 80, output="jsonl"),
        Part("times", program("times"), 50, output="jsonl"),
        # Behind the times, which leave the kernels compiled.
        Part("calibrate", benchmark("calibrate", "--walks", "--dry-run", "--threads", "1"), 20),
        Part("passes", program("passes"), 35, output="jsonl"),
        Part("rnn", benchmark("rnn", "--cases", "T1000,T30000", "--repeats", "5"), 30),
        Part("gru", benchmark("gru", "--cases", "S,M,L", "--repeats", "5"), 25),
        Part("spgemm", benchmark("spgemm", "--against", "cupyx", "--repeats", "3"), 20),
        by_tool("ncu", "ncu", ("--kernel-name", f"regex:^{PROFILED}$", *sections, "--csv", *profiled), 25),
        Part("tests", pytest, 190),
        *(
            by_tool(name, "compute-sanitizer", ("--tool", name, "--error-exitcode", "9", *sanitized), 45)
            for name in ("memcheck", "racecheck")
        ),
    ]


def program(name: str, *options: str) -> tuple[str, ...]:
    """The command of a program of this folder."""
    return (sys.executable, "-m", f"bppsa_cupy.tools.on_gpu.{name}", *options)


def benchmark(name: str, *options: str) -> tuple[str, ...]:
    """The command of a benchmark, whose JSON goes into the folder of results."""
    module = (sys.executable, "-m", "bppsa_cupy.tools.bench", name)
    return (*module, *options, "--device", "cuda", "--json", "{out}/" + f"{name}.json")


def by_tool(name: str, tool: str, options: tuple[str, ...], seconds: float) -> Part:
    """A part that a program of the CUDA toolkit runs, on the path or in its usual place."""
    usual = Path("/usr/local/cuda/bin", tool)
    found = shutil.which(tool) or (str(usual) if usual.exists() else None)
    missing = None if found else f"{tool} is neither on the path nor in {usual.parent}"
    return Part(name, (found or tool, *options), seconds, missing)


def workers() -> tuple[str, ...]:
    """pytest's options for processes beside each other, where it can have them."""
    return ("-n", "8") if importlib.util.find_spec("xdist") else ()


def plan(parts: Sequence[Part]) -> str:
    """A line a part: its limit, its command, and why it is left out; and the seconds of all."""
    lines = []
    for part in parts:
        why = f"  # left out: {part.missing}" if part.missing else ""
        lines.append(f"{part.name:10} {part.seconds:4.0f} s  {shlex.join(part.command)}{why}")
    return "\n".join([*lines, f"{'all':10} {sum(part.seconds for part in parts):4.0f} s of {TOTAL:.0f}"])
