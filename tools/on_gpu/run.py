"""Run the parts of `make gpu`, and leave one folder of results.

It holds summary.json, and of each part PART.jsonl or PART.txt, what it found, PART.log, what it said, and the
JSON of benchmarks. Parts that ran to their end are kept when the same sources are run into the folder again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.tools.machine import gpu_name, versions
from bppsa_cupy.tools.on_gpu.parts import TOTAL, Part, make_parts, plan

#: Seconds of a part's end, from Ctrl-C until it is killed.
GRACE = 5.0
#: The checkout, and its sources.
ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("bppsa_cupy", "jacobians", "raw_kernels", "tools", "tests")


@dataclass(frozen=True)
class Outcome:
    """How a part went: "passed", "failed (exit code)", "over its time", "no time left" or "left out: why".

    command  as it was run, to know it again
    """

    name: str
    outcome: str
    seconds: float
    command: str

    @property
    def finished(self) -> bool:
        """Whether it ran to its end."""
        return self.outcome.startswith(("passed", "failed"))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every part passed or is left out, 1 where one did not or there is no GPU."""
    parser = argparse.ArgumentParser(prog="gpu.py", description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="where parts run (default: the checkout)")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu", help="default out/gpu")
    parser.add_argument(
        "--call", type=int, choices=(1, 2), help="run the parts of this call (default: of both)"
    )
    parser.add_argument("--only", metavar="PART,PART", help="run these parts, though they ran before")
    parser.add_argument("--again", action="store_true", help="run parts that ran before, too")
    parser.add_argument("--dry-run", action="store_true", help="print limits and commands, and run nothing")
    arguments = parser.parse_args(argv)
    parts = make_parts()
    if arguments.call is not None:
        parts = [part for part in parts if part.call == arguments.call]
    if arguments.only is not None:
        known = {part.name: part for part in parts}
        for name in arguments.only.split(","):
            if name not in known:
                parser.error(f"{name} is no part: there are {', '.join(known)}")
        parts = [known[name] for name in arguments.only.split(",")]
    if arguments.dry_run:
        print(plan(parts))
        return 0
    return run(parts, arguments)


def run(parts: Sequence[Part], arguments: argparse.Namespace) -> int:
    """Run parts where there is a GPU; the exit code."""
    started = time.monotonic()
    try:
        device = get_device("cuda")
    except DeviceError as error:
        print(f"no check was made: {error}", file=sys.stderr)
        return 1
    machine = {"gpu": gpu_name(device), "versions": versions(device), "sources": digest(ROOT)}
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    before = earlier(out, machine)
    if arguments.only is not None or arguments.again:
        before = [one for one in before if one.name not in {part.name for part in parts}]
    calls = len({part.call for part in parts})
    outcomes = run_parts(parts, arguments.tree, out, started + calls * TOTAL, before, machine)
    print(table(outcomes))
    print(f"{machine['gpu']}, {time.monotonic() - started:.0f} s, results in {out}")
    return int(any(not one.outcome.startswith(("passed", "left out")) for one in outcomes))


def digest(root: Path) -> str:
    """A digest of the sources, tests included."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh", ".hpp", ".cpp"):
                found.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def earlier(out: Path, machine: Mapping[str, Any]) -> list[Outcome]:
    """The outcomes in the folder, where they are of the same sources, GPU and versions."""
    try:
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    if any(summary.get(key) != value for key, value in machine.items()):
        return []
    return [Outcome(**part) for part in summary["parts"]]


def run_parts(
    parts: Iterable[Part],
    tree: Path,
    out: Path,
    deadline: float,
    before: Iterable[Outcome] = (),
    machine: Mapping[str, Any] | None = None,
) -> list[Outcome]:
    """Run one part after the other in a folder until `deadline`, of time.monotonic; write summary.json after
    each.

    before  earlier outcomes: a part that ran to its end by the same command is not run again
    """
    known, outcomes = {one.name: one for one in before}, []
    for part in parts:
        kept = known.get(part.name)
        if kept is None or not kept.finished or kept.command != shlex.join(part.command):
            print(f"{part.name} …", file=sys.stderr, flush=True)
            kept = known[part.name] = run_part(part, tree, out, deadline)
        outcomes.append(kept)
        summary = {**(machine or {}), "parts": [asdict(one) for one in known.values()]}
        (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return outcomes


def run_part(part: Part, tree: Path, out: Path, deadline: float = math.inf) -> Outcome:
    """Run one part. GRACE seconds before its time is over its processes get Ctrl-C, at the end of it they are
    killed; what it printed stays."""
    started, name = time.monotonic(), shlex.join(part.command)
    seconds = min(part.seconds, deadline - started)
    if part.missing:
        return Outcome(part.name, f"left out: {part.missing}", 0.0, name)
    if seconds <= GRACE:
        return Outcome(part.name, "no time left", 0.0, name)
    command = [word.replace("{out}", str(out)) for word in part.command]
    printed, said = out / f"{part.name}.{part.output}", out / f"{part.name}.log"
    with open(printed, "wb") as results, open(said, "wb") as log:
        process = subprocess.Popen(
            command, cwd=tree, stdin=subprocess.DEVNULL, stdout=results, stderr=log, start_new_session=True
        )
        try:
            outcome = _wait(process, seconds - GRACE)
        finally:
            _signal(process, signal.SIGKILL)
            process.wait()
    return Outcome(part.name, outcome, round(time.monotonic() - started, 1), name)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """The outcome of a process that is to end within some seconds, and GRACE more after Ctrl-C."""
    try:
        code = process.wait(seconds)
        return f"failed ({code})" if code else "passed"
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    return "over its time"


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def table(outcomes: Sequence[Outcome]) -> str:
    """A line a part."""
    width = max(len(outcome.name) for outcome in outcomes)
    return "\n".join(f"{o.name.ljust(width)}  {o.seconds:6.1f} s  {o.outcome}" for o in outcomes)


if __name__ == "__main__":
    sys.exit(main())
