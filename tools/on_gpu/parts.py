"""The parts of `make gpu`: commands, and how long each may take."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

#: Seconds of each of the two calls: a lent machine may end a command after ten minutes.
TOTAL = 540.0
#: What the kernels' twins give, which `make gpu-expected` writes on a machine without a GPU.
EXPECTED = "{out}/expected.npz"

#: Kernels that are profiled, and those that are sanitized: recurrent ones, convolutions, pooling.
PROFILED = "rnn_tanh_(forward|backward)"
SANITIZED = "((rnn|gru|lstm|ctrnn|mgu|ugrnn|peephole).*|.*_scan|conv2d.*|.*pool2d.*)"
#: What a profile is of.
SECTIONS = (
    "SpeedOfLight", "LaunchStats", "Occupancy", "SchedulerStats", "WarpStateStats", "MemoryWorkloadAnalysis"
)  # fmt: skip
#: pytest's options: the versions of a machine's packages may warn of what the tests' own do not, and packages
#: that it lacks, or a module of tests that fails to load, are not to keep other tests from running.
PYTEST = (
    "-m", "gpu", "-v", "-W", "default", "-p", "no:cacheprovider", "-p", "missing_packages",
    "--continue-on-collection-errors",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One command and its limit in seconds.

    command  run in a folder that has the package and the tests; {out} in it stands for the folder of results
    call     1 or 2: the call of `make gpu` that runs it
    missing  what it needs and the machine lacks; None where it has all
    output   the suffix of the file that what it prints goes to: "jsonl" of programs that print JSON a line
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    missing: str | None = None
    output: str = "txt"
    call: int = 1


def make_parts() -> list[Part]:
    """All parts in the order of what they teach, those of the first call first."""
    twins = (sys.executable, "tests/support/kernels_on_device.py")
    once = ("--like", PROFILED, "--hidden", "20", "--steps", "1000", "--processes", "1", "--once")
    sections = [word for section in SECTIONS for word in ("--section", section)]
    # Locked clocks would be those of all that runs afterwards.
    profiler = ("--clock-control", "none", "--kernel-name", f"regex:^{PROFILED}$", *sections, "--csv")
    sanitizer = ("--tool", "racecheck", "--error-exitcode", "9")
    sanitized = (*twins, "--small", "--like", SANITIZED, "--dtypes", "float32", "--processes", "1")
    pytest = (sys.executable, "-m", "pytest", *PYTEST)
    first = [
        Part("machine", program("machine"), 40, output="jsonl"),
        Part("kernels", (*twins, "--dtypes", "float32", "--expected", EXPECTED), 150, output="jsonl"),
        Part("walks", program("times"), 90, output="jsonl"),
        Part("beside", (sys.executable, "-m", "bppsa_cupy.tools.benchmarks.beside"), 120, output="jsonl"),
        Part("products", program("products"), 40, output="jsonl"),
        Part("nccl", program("nccl"), 30, output="jsonl"),
    ]
    second = [
        Part("calibrate", benchmark("calibrate", "--walks", "--dry-run", "--threads", "1"), 50),
        Part("passes", program("passes"), 90, output="jsonl"),
        Part("doors", (*pytest, "tests/devices/test_doors.py"), 60),
        by_tool("ncu", "ncu", (*profiler, *program("times", *once)), 40),
        by_tool("racecheck", "compute-sanitizer", (*sanitizer, *sanitized), 80),
        Part("spgemm", benchmark("spgemm", "--against", "cupyx", "--repeats", "3"), 30),
        Part("tests", (*pytest, *workers(), "tests"), 180),
    ]
    return [*first, *(replace(part, call=2) for part in second)]


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
    count = str(min(16, os.cpu_count() or 1))
    return ("-n", count, "--dist", "worksteal") if importlib.util.find_spec("xdist") else ()


def plan(parts: Sequence[Part]) -> str:
    """A line a part, by calls: its limit, its command, why it is left out; and the seconds of each call."""
    lines = []
    for call in sorted({part.call for part in parts}):
        of_call = [part for part in parts if part.call == call]
        for part in of_call:
            why = f"  # left out: {part.missing}" if part.missing else ""
            lines.append(f"{part.name:10} {part.seconds:4.0f} s  {shlex.join(part.command)}{why}")
        lines.append(f"{f'call {call}':10} {sum(part.seconds for part in of_call):4.0f} s of {TOTAL:.0f}")
    return "\n".join(lines)
