"""The checks that need a GPU, with this machine's own packages: tests, compute-sanitizer, benchmarks.

Nothing is installed or downloaded; the package need not be installed. `make gpu` runs it. The folder of
results holds summary.json, benchmarks.json (a list of what bppsa-bench writes) and the logs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("jacobians", "raw_kernels", "tools")

#: Prints what the machine has; a line on stderr and exit code 1 where it has no GPU that CuPy can use.
PROBE = """
import json, sys
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.tools.benchmarks import find_benchmarks
from bppsa_cupy.tools.benchmarks.machine import gpu_name, versions
try:
    device = get_device("cuda")
except DeviceError as error:
    sys.exit(str(error))
names = list(find_benchmarks())
print(json.dumps({"gpu": gpu_name(device), "versions": versions(device), "benchmarks": names}))
"""

#: pytest without CuPy's memory pool, inside which the sanitizer would see no bounds.
SANITIZED = """
import sys
import pytest
from bppsa_cupy.devices.cuda import import_cupy
import_cupy().cuda.set_allocator(None)
sys.exit(pytest.main(sys.argv[1:]))
"""

#: The versions of a machine's packages may warn of what the tests' own do not.
PYTEST = ("-m", "gpu", "-q", "-W", "default", "-p", "no:cacheprovider")
SANITIZED_TESTS = ("tests/test_kernel_pairs.py", "tests/test_scan_kernels.py")
SANITIZERS = ("memcheck", "racecheck")

RESULTS = ("summary.json", "benchmarks.json", "tests.log", "sanitizer.log", "benchmarks.log")

#: What keeps a benchmark within its seconds, the cases with goals of their own, and the rival on a GPU.
SHORTER = {
    "rnn": ("--cases", "T1000,T30000", "--repeats", "10"),
    "gru": ("--cases", "S,M,L", "--repeats", "10"),
    "spgemm": ("--against", "cupyx", "--repeats", "5"),
}

#: Seconds: of everything, and at most of each check.
TOTAL, TESTS, SANITIZER, BENCHMARK = 480.0, 200.0, 60.0, 90.0


@dataclass(frozen=True)
class Check:
    """One command, its limit in seconds, and the log its output is added to."""

    name: str
    command: tuple[str, ...]
    seconds: float
    log: str


@dataclass(frozen=True)
class Outcome:
    """How a check went: "passed", "failed (exit code)", "over its time" or "no time left"."""

    name: str
    outcome: str
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every check passed, 1 where one did not or there is no GPU."""
    parser = argparse.ArgumentParser(prog="gpu.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu", help="default out/gpu")
    parser.add_argument("--seconds", type=float, default=TOTAL, help="for everything (default 480)")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = make_tree(ROOT, Path(folder))
        found = probe(tree)
        if isinstance(found, str):
            print(f"no check was made: {found}", file=sys.stderr)
            return 1
        out = arguments.out.resolve()
        out.mkdir(parents=True, exist_ok=True)
        for name in RESULTS:
            (out / name).unlink(missing_ok=True)
        checks = make_checks(found["benchmarks"], tree, find_sanitizer())
        outcomes = run_checks(checks, tree, out, started + arguments.seconds)
        write_results(found, outcomes, tree, out)
    print(table(outcomes))
    print(f"{found['gpu']}, {time.monotonic() - started:.0f} s, results in {out}")
    return int(any(outcome.outcome != "passed" for outcome in outcomes))


def make_tree(root: Path, folder: Path) -> Path:
    """A folder of links to the checkout's files in which the package is whole, as if installed."""
    for path in root.iterdir():
        if path.name != "bppsa_cupy" and not path.name.startswith(".") and path.name != "out":
            (folder / path.name).symlink_to(path)
    package = folder / "bppsa_cupy"
    package.mkdir()
    for path in (*(root / "bppsa_cupy").iterdir(), *(root / name for name in MAPPED)):
        (package / path.name).symlink_to(path)
    return folder


def environment(tree: Path) -> dict[str, str]:
    """What a check's process sees: the tree before all else, and nothing written into the checkout."""
    others = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(tree), *([others] if others else [])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


def probe(tree: Path) -> dict[str, Any] | str:
    """The GPU's name, the versions and the benchmarks there are; else why there is no GPU, in a line."""
    result = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=tree, env=environment(tree), capture_output=True, encoding="utf-8"
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        return lines[-1] if lines else f"Python ended with exit code {result.returncode}"
    return json.loads(result.stdout.splitlines()[-1])


def find_sanitizer() -> str | None:
    """compute-sanitizer, on the path or beside CUDA's compiler; None where there is none."""
    usual = Path("/usr/local/cuda/bin/compute-sanitizer")
    return shutil.which("compute-sanitizer") or (str(usual) if usual.exists() else None)


def make_checks(benchmarks: Iterable[str], tree: Path, sanitizer: str | None) -> list[Check]:
    """The tests, a short set of them under the sanitizer, and every benchmark, some with fewer cases."""
    checks = [Check("tests", (sys.executable, "-m", "pytest", *PYTEST, "tests"), TESTS, "tests.log")]
    for tool in SANITIZERS if sanitizer else ():
        command = (str(sanitizer), "--tool", tool, "--error-exitcode", "9", sys.executable, "-c", SANITIZED)
        checks.append(Check(tool, (*command, *PYTEST, *SANITIZED_TESTS), SANITIZER, "sanitizer.log"))
    for name in benchmarks:
        options = (*SHORTER.get(name, ()), "--device", "cuda", "--json", str(tree / f"bench-{name}.json"))
        command = (sys.executable, "-m", "bppsa_cupy.tools.bench", name, *options)
        checks.append(Check(f"bench {name}", command, BENCHMARK, "benchmarks.log"))
    return checks


def run_checks(checks: Iterable[Check], tree: Path, out: Path, deadline: float) -> list[Outcome]:
    """Run one check after the other until `deadline`, of time.monotonic."""
    outcomes = []
    for check in checks:
        print(f"{check.name} …", file=sys.stderr, flush=True)
        outcomes.append(run_check(check, tree, out, deadline))
    return outcomes


def run_check(check: Check, tree: Path, out: Path, deadline: float = math.inf) -> Outcome:
    """Run one check; when its time is over, its processes are killed, what it printed stays."""
    started = time.monotonic()
    seconds = min(check.seconds, deadline - started)
    if seconds <= 0:
        return Outcome(check.name, "no time left", 0.0)
    with open(out / check.log, "a", encoding="utf-8") as log:
        log.write(f"==== {check.name}\n")
        log.flush()
        process = subprocess.Popen(
            check.command,
            cwd=tree,
            env=environment(tree),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
            outcome = "failed" if code else "passed"
            outcome += f" ({code})" if code else ""
        except subprocess.TimeoutExpired:
            outcome = "over its time"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.write(f"==== {check.name}: {outcome}\n")
    return Outcome(check.name, outcome, time.monotonic() - started)


def write_results(found: dict[str, Any], outcomes: list[Outcome], tree: Path, out: Path) -> None:
    """summary.json, and benchmarks.json with what the benchmarks wrote."""
    summary = {
        "gpu": found["gpu"],
        "versions": found["versions"],
        "parts": [asdict(outcome) for outcome in outcomes],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    files = [tree / f"bench-{name}.json" for name in found["benchmarks"]]
    reports = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    (out / "benchmarks.json").write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


def table(outcomes: Sequence[Outcome]) -> str:
    """A line a check."""
    width = max(len(outcome.name) for outcome in outcomes)
    return "\n".join(f"{o.name.ljust(width)}  {o.seconds:6.1f} s  {o.outcome}" for o in outcomes)


if __name__ == "__main__":
    sys.exit(main())
