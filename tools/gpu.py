"""Run what needs a GPU, in one call of at most 560 seconds: `make gpu`.

Nothing is installed or downloaded, and the package need not be installed: a folder of links puts it together.
The parts run in order of value, each under a limit. They leave at most 8 files in --out, which are complete
after every line: summary.json (outcome of each part), results.jsonl (what the parts print as JSON), log.txt
(all else), and the JSON files of benchmarks.

`make gpu-ahead` prepares out/ahead on a machine without a GPU: machine code of all kernels. Without it,
that is made on the machine with the GPU, which takes minutes.
"""

from __future__ import annotations

import argparse
import configparser
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("jacobians", "raw_kernels", "tools")
#: What is prepared without a GPU: a cache of machine code.
AHEAD = ROOT / "out" / "ahead"
#: Seconds of all parts; of a part's end, from Ctrl-C until it is killed; of a part that is rehearsed.
TOTAL, GRACE, REHEARSAL = 560.0, 5.0, 600.0
#: For which GPU and which CuPy machine code is prepared.
TARGET, CUPY = "sm_90", "14.2.0"
#: Kernels that are compiled first.
FIRST = ("rnn_tanh_", "gru_", "lstm_")

PYTHON, CUDA = sys.executable, "/usr/local/cuda/bin"
#: Kernels that Nsight Compute looks at, and its sections. Locked clocks would be those of all later parts.
PROFILED = "rnn_tanh_(forward|backward|reduce)|cross_entropy|sparse_(convolve|weight_gradient)"
SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy", "WarpStateStats", "MemoryWorkloadAnalysis")
#: The tests of kernels, and those that racecheck runs: shared memory, asynchronous copies, barriers.
PAIRS, VALUES = "tests/raw_kernels/test_kernel_pairs.py", "test_the_text_computes_what_the_twin_does"
RACED = ("gru_backward", "chunk_scan", "sparse_convolve")
PYTEST = (
    PYTHON, "-m", "pytest", "-m", "gpu", "-v", "-W", "default", "-p", "no:cacheprovider",
    "-p", "missing_packages", "--continue-on-collection-errors",
)  # fmt: skip
#: Folders of tests that have some for a GPU, by value.
TESTED = (
    "timescan", "layers", "training", "devices", "torch", "products", "network", "scan", "functional",
    "cells", "pipeline", "records", "jacobians", "raw_kernels",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A command and its limit. {out} in a command stands for the folder of results.

    Without a GPU, --dry-run runs `rehearsal` instead. None means that nothing can be rehearsed.
    """

    name: str
    seconds: float
    command: tuple[str, ...]
    rehearsal: tuple[str, ...] | None = None


@dataclass
class Outcome:
    """How a part went: "passed", "failed (exit code)", "over its time", "no time left" or "left out: why"."""

    name: str
    outcome: str
    seconds: float


def make_parts() -> list[Part]:
    """All parts in order of value. The last one takes the time that is left."""
    compiled = (PYTHON, "tools/gpu.py", "--compile")
    walks, profile = module("on_gpu.walk_steps"), module("on_gpu.step_profile")
    on_host = ("--device", "host", "--like", "RNN T10", "--steps", "2")
    tiny = ("--device", "host", "--hidden", "3", "--steps", "6")
    sections = [word for section in SECTIONS for word in ("--section", section)]
    ncu = (
        "ncu", "--clock-control", "none", "--kernel-name", f"regex:^({PROFILED})$", "--launch-count", "40",
        *sections, *profile, "--once",
    )  # fmt: skip
    passes = (*module("bench"), "rnn", "--repeats", "10", "--threads", "1", "--like")
    captures = (*PYTEST, "tests/devices/test_graphs_on_gpu.py")
    sanitizer = ("compute-sanitizer", "--error-exitcode", "9", "--tool")
    workers = ("-n", "16", "--dist", "worksteal") if importlib.util.find_spec("xdist") else ()
    pytest = (*PYTEST, *workers)
    pairs = (*pytest, "-k", "float32", PAIRS)
    raced = (*PYTEST, *(f"{PAIRS}::{VALUES}[cuda-{name}-float32-uint32]" for name in RACED))
    tests = (*pytest, *(f"tests/{folder}" for folder in TESTED))
    return [
        Part("machine", 10, ("nvidia-smi",)),
        Part("ahead", 40, compiled, (*compiled, "--like", "sgd_step")),
        Part("walks", 25, (*walks, "--steps", "1000"), (*walks, *tiny)),
        Part("captures", 30, captures, (*captures, "--collect-only", "-q")),
        steps("paper", 45),
        steps("grid", 130, seconds_of_case=1),
        steps("images", 65),
        Part("kernels", 40, pairs, (*pairs, "--collect-only", "-q")),
        Part("ncu", 25, ncu),
        Part("memcheck", 20, (*sanitizer, "memcheck", *captures)),
        Part("racecheck", 15, (*sanitizer, "racecheck", *raced), (*raced, "--collect-only", "-q")),
        Part("profile", 20, profile, (*profile, *on_host)),
        bench("spgemm", 40, "--against", "cupyx", "--repeats", "3", rehearsed=("--against", "none")),
        Part("backward", 10, (*passes, "T30000"), (*passes, "T", "--device", "host", "--quick")),
        bench(
            "train", 25, "--model", "lenet5", "--batch-size", "256", "--methods", "bp", "linear", "blelloch",
            "--repeats", "5",
        ),
        Part("tests", TOTAL, tests, (*tests, "--collect-only", "-q")),
    ]  # fmt: skip


def module(name: str) -> tuple[str, ...]:
    """The command of a module of the tools."""
    return (PYTHON, "-m", f"bppsa_cupy.tools.{name}")


def bench(name: str, seconds: float, *options: str, file: str = "", rehearsed: Sequence[str] = ()) -> Part:
    """A benchmark, whose JSON file is complete after every case."""
    command = (*module("bench"), name, *options, "-o", f"{{out}}/{file or name}.json")
    rehearsal = (*command, "--quick", "--threads", "1", *rehearsed, "--device")
    return Part(file or name, seconds, (*command, "--device", "cuda"), (*rehearsal, "host"))


def steps(cases: str, seconds: float, seconds_of_case: int = 2) -> Part:
    """Training steps of some cases, beside PyTorch."""
    limits = ("--case-seconds", str(seconds_of_case), "--repeats", "15")
    return bench("steps", seconds, "--kinds", cases, *limits, file=cases)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every part passed or is left out, 1 elsewhere."""
    parser = argparse.ArgumentParser(prog="gpu.py", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "gpu",
        help="Write results to this folder. Default: out/gpu.",
    )  # fmt: skip
    parser.add_argument("--only", metavar="PART,PART", help="Run only these parts. Default: all parts.")
    parser.add_argument("--dry-run", action="store_true", help="Rehearse the parts without a GPU.")
    parser.add_argument(
        "--compile", action="store_true", help="Compile all kernels that have no machine code."
    )
    parser.add_argument(
        "--like", default=".*", help="Compile the names that match this pattern. Default: all."
    )
    arguments = parser.parse_args(argv)
    if arguments.compile:
        return compile_ahead(arguments.like)
    parts = make_parts()
    if arguments.only is not None:
        known = {part.name: part for part in parts}
        if unknown := set(arguments.only.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: there is no such part, only {', '.join(known)}")
        parts = [known[name] for name in arguments.only.split(",")]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = make_tree(ROOT, Path(folder))
        outcomes = run_parts(parts, tree, arguments.out.resolve(), arguments.dry_run)
    width = max(len(outcome.name) for outcome in outcomes)
    limits = {part.name: part.seconds for part in parts}
    for outcome in outcomes:
        duration = f"{outcome.seconds:6.1f} of {limits[outcome.name]:3.0f} s"
        print(f"{outcome.name:{width}}  {duration}  {outcome.outcome}")
    print(f"{time.monotonic() - started:.0f} s, results in {arguments.out}")
    return int(any(not outcome.outcome.startswith(("passed", "left out")) for outcome in outcomes))


def run_parts(parts: Sequence[Part], tree: Path, out: Path, dry_run: bool = False) -> list[Outcome]:
    """Run one part after the other until TOTAL seconds have passed; write summary.json after each."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("log.txt", "results.jsonl"):
        (out / name).unlink(missing_ok=True)
    deadline, outcomes = time.monotonic() + TOTAL, []
    for part in parts:
        command, limit = part.command, min(part.seconds, deadline - time.monotonic())
        if dry_run:
            command, limit = part.rehearsal or (), REHEARSAL
        outcome = Outcome(part.name, "", 0.0)
        program = command and (shutil.which(command[0]) or shutil.which(command[0], path=CUDA))
        if not command:
            outcome.outcome = "left out: it needs a GPU"
        elif not program:
            outcome.outcome = f"left out: {command[0]} is neither on the path nor in {CUDA}"
        elif limit <= GRACE:
            outcome.outcome = "no time left"
        else:
            print(f"{part.name} …", file=sys.stderr, flush=True)
            words = [word.replace("{out}", str(out)) for word in (program, *command[1:])]
            variables = environment(tree, AHEAD if AHEAD.exists() and not dry_run else None)
            outcome = run_part(part.name, words, tree, variables, out, limit)
        outcomes.append(outcome)
        text = json.dumps([asdict(outcome) for outcome in outcomes], indent=1)
        (out / "summary.json").write_text(text + "\n", encoding="utf-8")
    return outcomes


def run_part(
    name: str, command: Sequence[str], tree: Path, variables: Mapping[str, str], out: Path, seconds: float
) -> Outcome:
    """Run a command. GRACE seconds before its time is over its processes get Ctrl-C, at the end they are
    killed; what it printed stays."""
    started = time.monotonic()
    log_file, results_file = out / "log.txt", out / "results.jsonl"
    with open(log_file, "ab", buffering=0) as log, open(results_file, "ab", buffering=0) as results:
        log.write(f"\n==== {name}: {shlex.join(command)}\n".encode())
        process = subprocess.Popen(
            command, cwd=tree, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=log, start_new_session=True,
        )  # fmt: skip

        assert process.stdout is not None

        def sort_lines(lines: Iterable[bytes]) -> None:
            for line in lines:
                if (values := as_object(line)) is None:
                    log.write(line)
                else:
                    results.write(json.dumps({"part": name, **values}).encode() + b"\n")

        reader = threading.Thread(target=sort_lines, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            outcome = wait(process, seconds - GRACE)
        finally:
            send(process, signal.SIGKILL)
            process.wait()
            reader.join(GRACE)
            if not reader.is_alive():
                process.stdout.close()
    return Outcome(name, outcome, round(time.monotonic() - started, 1))


def as_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is, if it is one."""
    if line.startswith(b"{"):
        with suppress(ValueError):
            return dict(json.loads(line))
    return None


def wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """The outcome of a process that is to end within some seconds, and GRACE more after Ctrl-C."""
    try:
        code = process.wait(seconds)
        return f"failed ({code})" if code else "passed"
    except subprocess.TimeoutExpired:
        send(process, signal.SIGINT)
    except KeyboardInterrupt:
        return "interrupted"
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    return "over its time"


def send(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def make_tree(root: Path, folder: Path) -> Path:
    """A folder of links to the checkout's files in which the package is complete, as if installed."""
    for path in root.iterdir():
        if path.stem != "bppsa_cupy" and not path.name.startswith(".") and path.name != "out":
            (folder / path.name).symlink_to(path)
    package = folder / "bppsa_cupy"
    package.mkdir()
    for path in (*(root / "bppsa_cupy").iterdir(), *(root / name for name in MAPPED)):
        (package / path.name).symlink_to(path)
    # Commands and plans ask for the version of what is installed.
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg", encoding="utf-8")
    facts = folder / "bppsa_cupy.dist-info"
    facts.mkdir()
    lines = [f"{key.title()}: {setup['metadata'][key]}\n" for key in ("name", "version")]
    (facts / "METADATA").write_text("Metadata-Version: 2.1\n" + "".join(lines), encoding="utf-8")
    return folder


def environment(tree: Path, cache: Path | None) -> dict[str, str]:
    """What the parts see: the tree before all else, its tests for plugins of pytest, and machine code."""
    others = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(tree), str(tree / "tests" / "support"), *([others] if others else [])])
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    # Without bytecode each part would compile all modules again.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    # JAX would take three quarters of the GPU's memory in each process of the tests.
    variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return variables if cache is None else {**variables, "XDG_CACHE_HOME": str(cache)}


def compile_ahead(like: str) -> int:
    """Compile the float32 kernels that have no machine code yet, on all cores: by CuPy for its GPU, without
    CuPy by NVRTC into AHEAD. Prints how many variants there are and how many were compiled."""
    from bppsa_cupy.devices import cubins
    from bppsa_cupy.devices.cuda import import_cupy
    from bppsa_cupy.errors import DeviceError
    from bppsa_cupy.raw_kernels import KERNELS
    from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES

    started = time.monotonic()
    work = [
        (kernel, variant)
        for kernel in KERNELS.values()
        if re.fullmatch(like, kernel.name)
        for variant in kernel.variants(ARCHITECTURES[TARGET].shared_bytes)
        if variant.real == "float32"
    ]
    work.sort(key=lambda job: (not job[0].name.startswith(FIRST), -len(job[0].text)))
    try:
        cupy, folder = import_cupy(), cubins.kept_in() / "cuda"
    except DeviceError:
        cupy, folder = None, AHEAD / "bppsa-cupy" / "cuda"
    folder.mkdir(parents=True, exist_ok=True)
    before = len(list(folder.iterdir()))

    def compile_one(kernel: Any, variant: Any) -> None:
        if cupy is None:
            compile_without_gpu(kernel, variant, folder)
        else:
            cubins.machine_code(cupy, kernel, variant)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: compile_one(*job), work))
    compiled, seconds = len(list(folder.iterdir())) - before, round(time.monotonic() - started, 1)
    print(json.dumps({"machine_code": len(work), "compiled": compiled, "seconds": seconds}), flush=True)
    return 0


def compile_without_gpu(kernel: Any, variant: Any, folder: Path) -> None:
    """Leave the machine code that CuPy would make in a folder, under the name by which it is looked for."""
    from bppsa_cupy.devices.cubins import cubin_name, cubin_stem

    sys.path.append(str(ROOT / "tests" / "support"))
    nvrtc = importlib.import_module("nvrtc")
    stem = cubin_stem(kernel, variant, TARGET.removeprefix("sm_"), nvrtc.version(), CUPY)
    if not any(folder.glob(f"{stem}-*")):
        code = nvrtc.compile_text(kernel.source(variant), TARGET).code
        (folder / cubin_name(stem, code)).write_bytes(code)


if __name__ == "__main__":
    sys.exit(main())
