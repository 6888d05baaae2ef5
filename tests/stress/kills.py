"""Stop commands that write files at random moments: `python tests/stress/kills.py SECONDS`.

A command gets SIGKILL, SIGTERM or SIGINT. Every output must then be complete, absent or what an older run
left. The next run must give the bits of an undisturbed run, and a child process must read its files. The exit
code is 1 where one does not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
import wave
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Commands run in forked processes: threads would not survive in them.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ |= {"NUMBA_THREADING_LAYER": "workqueue", "BPPSA_QUIET": "1"}

import numpy as np  # noqa: E402

import bppsa_cupy as bp  # noqa: E402
from bppsa_cupy.data.sequences import read_sequences  # noqa: E402
from bppsa_cupy.records.file import load_jacobians  # noqa: E402
from bppsa_cupy.tools import data, jacobians, plan, train  # noqa: E402
from bppsa_cupy.training import loop  # noqa: E402
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint  # noqa: E402

MODEL = """
import bppsa_cupy as bp

def make(input_shape=(1, 8, 8), classes=3, seed=0, dtype="float32", device="auto"):
    layers = [bp.Conv2d(1, 4, 3), bp.ReLU(), bp.Flatten(), bp.Dropout(0.2), bp.Linear(144, classes)]
    return bp.Sequential(layers, input_shape, seed=seed, dtype=dtype, device=device)
"""
#: Seconds in which every command ends, and the exit code of a command that raised an exception.
LONGEST, RAISED = 120.0, 97
#: What an older run left at an output.
OLD = b"an older file"
SIGNALS = {signal.SIGKILL: (0, -9), signal.SIGTERM: (0, -15), signal.SIGINT: (0, 130, -2)}


class Command(NamedTuple):
    """A command that writes files.

    main     its entry point
    line     its arguments
    outputs  the files it writes, and what reads each
    resume   arguments that continue a stopped run
    """

    name: str
    main: Callable[[list[str]], int]
    line: tuple[str, ...]
    outputs: dict[str, Callable[[Path], Any]]
    resume: tuple[str, ...] = ()


def read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


MAKE = "model.py:make"
TRAIN = (MAKE, *"--data d.npz --epochs 8 --batch-size 8 --method bp --checkpoint c.h5 --log l.jsonl".split())
BITS = ("bitstream", *"--length 200 --samples 2000 -o b.h5".split())
AUDIO = ("audio", *"clips --rate 8000 --workers 1 -o a.h5".split())
COMMANDS = (
    Command(
        "plan build", plan.main, ("build", MAKE, *"-o p.h5 --batch-size 4".split()), {"p.h5": bp.Plan.load}
    ),
    Command(
        "jacobians dump",
        jacobians.main,
        ("dump", MAKE, *"-o j.h5 --data d.npz".split()),
        {"j.h5": load_jacobians},
    ),
    Command(
        "train", train.main, TRAIN, {"c.h5": load_checkpoint, "l.jsonl": read_text}, ("--resume", "c.h5")
    ),
    Command("data bitstream", data.main, BITS, {"b.h5": read_sequences}),
    Command("data audio", data.main, AUDIO, {"a.h5": read_sequences}),
)


def fill(folder: Path) -> None:
    """Write what the commands read."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    np.savez(folder / "d.npz", x=rng.standard_normal((64, 1, 8, 8)).astype("float32"), y=np.arange(64) % 3)
    for kind in ("cat", "dog"):
        (folder / "clips" / kind).mkdir(parents=True)
        for number in range(2):
            with wave.open(str(folder / "clips" / kind / f"{number}.wav"), "wb") as clip:
                clip.setparams((1, 2, 8000, 0, "NONE", ""))
                clip.writeframes((rng.standard_normal(8000) * 3000).astype("<i2").tobytes())


def start(
    folder: Path, work: Callable[[], int], before: Callable[[], None] = lambda: None
) -> multiprocessing.process.BaseProcess:
    """Call `work` in a forked process whose current folder is `folder` and whose stderr is a file there."""

    def be() -> None:
        code = RAISED
        try:
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(os.open(folder.parent / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            sys.path.insert(0, str(folder))
            before()
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    process = multiprocessing.get_context("fork").Process(target=be)
    process.start()
    return process


def run_command(
    command: Command, folder: Path, line: Sequence[str], before: Callable[[], None] = lambda: None
) -> str:
    """Run a command to its end; return "" or what is wrong."""
    process = start(folder, lambda: command.main(list(line)), before)
    process.join(LONGEST)
    if process.exitcode == 0:
        return ""
    process.kill()
    return f"{command.name} ended with {process.exitcode}: {(folder.parent / 'stderr').read_text()}"


def read_outputs(command: Command, folder: Path) -> str:
    """Read every output in a child process; return "" or what is wrong."""

    def read() -> int:
        for name, reader in command.outputs.items():
            reader(folder / name)
        return 0

    process = start(folder, read)
    process.join(LONGEST)
    return "" if process.exitcode == 0 else f"unreadable: {(folder.parent / 'stderr').read_text()}"


class Undisturbed(NamedTuple):
    """What an undisturbed command leaves: outputs, checkpoints of epochs, names in the folder, seconds."""

    outputs: dict[str, bytes]
    checkpoints: list[bytes]
    names: set[str]
    seconds: float


def run_undisturbed(command: Command, source: Path, folder: Path) -> Undisturbed:
    """Run a command twice; the second run needs no compilation, so its time counts."""
    with tempfile.TemporaryDirectory() as saved:

        def keep_checkpoints() -> None:
            def save(path: Path, checkpoint: Checkpoint) -> None:
                save_checkpoint(path, checkpoint)
                shutil.copy(path, Path(saved, f"{checkpoint.step}.h5"))

            loop.save_checkpoint = save

        for before in (keep_checkpoints, lambda: None):
            refresh(source, folder)
            began = time.monotonic()
            fault = run_command(command, folder, command.line, before)
            assert not fault, fault
            seconds = time.monotonic() - began
        checkpoints = [path.read_bytes() for path in Path(saved).iterdir()]
    outputs = {name: (folder / name).read_bytes() for name in command.outputs}
    return Undisturbed(outputs, checkpoints, list_names(folder), seconds)


def refresh(source: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)


def list_names(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if name != "__pycache__" and not name.endswith(".part")}


def stop(
    command: Command, normal: Undisturbed, source: Path, folder: Path, rng: np.random.Generator
) -> tuple[str, str]:
    """Stop a command and run it again: (the signal, "" or what is wrong)."""
    refresh(source, folder)
    number = signal.Signals(int(rng.choice(list(SIGNALS))))
    has_old = bool(rng.integers(2)) and not command.resume
    for name in command.outputs if has_old else ():
        (folder / name).write_bytes(OLD)
    process = start(folder, lambda: command.main(list(command.line)))
    time.sleep(rng.uniform(0, 1.05 * normal.seconds))
    if process.is_alive():
        os.kill(process.pid, number)
    process.join(LONGEST)
    return number.name, check_stopped(command, normal, folder, process.exitcode, number, has_old)


def check_stopped(
    command: Command,
    normal: Undisturbed,
    folder: Path,
    code: int | None,
    number: signal.Signals,
    has_old: bool,
) -> str:
    said = (folder.parent / "stderr").read_text() if (folder.parent / "stderr").exists() else ""
    # Ctrl-C before the command has begun raises KeyboardInterrupt in this program.
    if code not in SIGNALS[number] and not (number == signal.SIGINT and "KeyboardInterrupt" in said):
        return f"it ended with {code}: {said}"
    if code == 130 and len(said.splitlines()) != 1:
        return f"it said {said!r}"
    for name in command.outputs:
        path = folder / name
        if path.exists() and not (has_old and path.read_bytes() == OLD):
            if not is_complete(name, path.read_bytes(), normal):
                return f"{name} is half written"
    resumable = command.resume and (folder / command.resume[-1]).exists()
    fault = run_command(command, folder, (*command.line, *command.resume) if resumable else command.line)
    fault = fault or read_outputs(command, folder)
    if fault:
        return fault
    for name, content in normal.outputs.items():
        if (folder / name).read_bytes() != content:
            return f"{name} of the next run has other bits"
    left = list_names(folder) ^ normal.names
    return f"left behind: {left}" if left else ""


def is_complete(name: str, content: bytes, normal: Undisturbed) -> bool:
    """Whether an output is that of an undisturbed run or epoch, or the first lines of its log."""
    if name == "c.h5":
        return content in normal.checkpoints
    complete = normal.outputs[name]
    return complete.startswith(content) if name.endswith(".jsonl") else content == complete


def main() -> int:
    """Return 0 where every file was complete and every next run equal, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seconds", type=float, help="how long to go on")
    parser.add_argument("--seed", type=int, help="of the moments (default: a new one)")
    parser.add_argument("--command", choices=[command.name for command in COMMANDS], help="only this command")
    arguments = parser.parse_args()
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    rng, counts, wrong, began = np.random.default_rng(seed), Counter[tuple[str, str]](), 0, time.monotonic()
    chosen = [command for command in COMMANDS if arguments.command in (None, command.name)]
    print(f"kills, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bppsa-stress-") as place:
        source, folder = Path(place, "source"), Path(place, "work")
        fill(source)
        normal = {command.name: run_undisturbed(command, source, folder) for command in chosen}
        while time.monotonic() - began < arguments.seconds or not counts:
            for command in chosen:
                name, fault = stop(command, normal[command.name], source, folder, rng)
                counts[command.name, name] += 1
                if fault:
                    wrong += 1
                    print(f"{command.name}, {name}: {fault}", flush=True)
    for (command_name, signal_name), count in sorted(counts.items()):
        print(f"  {command_name}: {count} {signal_name}")
    print(f"kills, seed {seed}: {counts.total()} tried, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
