"""Training over ranks of which one is killed.

Nothing runs on, the checkpoint is whole, and a resumed run is as one that was never stopped.

    python tests/support/rank_kills.py 50 [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mpi

from bppsa_cupy.training.checkpoint import load_checkpoint

#: Seconds in which all ranks are to have ended after one of them was killed.
SOON = 5.0
OPTIONS = "lenet5 --data digits --batch-size 128 --epochs 3 --clip 5 --optimizer adam --lr 0.002".split()


def train(folder: Path, ranks: int, *options: str) -> subprocess.Popen[str]:
    """Start training, over `ranks` where there are several, with checkpoint and log in `folder`."""
    files = ["--checkpoint", str(folder / "net.h5"), "--log", str(folder / "log.jsonl")]
    over = ["--ranks", "layers"] if ranks > 1 else []
    return mpi.start(ranks, "-m", "bppsa_cupy.tools.train", *OPTIONS, *files, *over, *options)


def losses(folder: Path) -> list[float]:
    """The loss of every step, from the log."""
    with open(folder / "log.jsonl", encoding="utf-8") as lines:
        return [json.loads(line)["loss"] for line in lines]


def steps_of(folder: Path) -> int:
    """How many steps the log tells of."""
    path = folder / "log.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def whole_run(folder: Path) -> list[float]:
    """The losses of one process that is not stopped."""
    ended = mpi.finish(train(folder, 1))
    assert ended.returncode == 0, ended.stderr
    return losses(folder)


def ranks_of(launcher: int) -> list[int]:
    """The process ids of the ranks that a launcher has started: Python, below it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    return [process for process in parents if launcher in above(process, parents) and is_rank(process)]


def above(process: int, parents: dict[int, int]) -> list[int]:
    """The processes that started this one, the nearest first."""
    found = []
    while (process := parents.get(process, 0)) in parents:
        found.append(process)
    return found


def is_rank(process: int) -> bool:
    program, *arguments = command_of(process).split(" ")
    return "python" in Path(program).name and "bppsa_cupy.tools.train" in arguments


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8").replace("\0", " ")
    except OSError:
        return ""


def kill_and_resume(seed: int, expected: list[float], ranks: int = 4) -> str:
    """Kill a random rank behind a random step, and resume on another number of ranks; what happened."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running = train(folder, ranks)
        end = time.monotonic() + 60
        while len(victims := ranks_of(running.pid)) < ranks:
            assert time.monotonic() < end and running.poll() is None, "the ranks did not start"
            time.sleep(0.01)
        step = draw.randrange(len(expected))
        while steps_of(folder) < step and running.poll() is None:
            time.sleep(0.002)
        victims = ranks_of(running.pid)
        since = time.monotonic()
        if victims:
            os.kill(draw.choice(victims), signal.SIGKILL)
        ended = mpi.finish(running, limit=60, since=since)
        if victims:
            assert ended.returncode != 0 or len(losses(folder)) == len(expected), (
                "a killed run says it is done"
            )
        while any(map(is_rank, victims)):
            assert time.monotonic() - since < SOON, f"ranks run on {SOON} s after the kill"
            time.sleep(0.01)
        kept = folder / "net.h5"
        step = load_checkpoint(kept).step if kept.exists() else 0
        again = draw.choice([1, 2, 3])
        resumed = mpi.finish(train(folder, again, *(["--resume", str(kept)] if step else [])))
        assert resumed.returncode == 0, resumed.stderr
        assert losses(folder) == expected, "the losses differ from those of a run that was not stopped"
        return f"killed after {ended.seconds:.2f} s, at step {step} of {len(expected)}, resumed on {again}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        expected = whole_run(Path(name))
    for seed in range(arguments.seed, arguments.seed + arguments.kills):
        print(f"kill {seed}: {kill_and_resume(seed, expected)}", flush=True)
    print(
        f"{arguments.kills} kills: all ended within {SOON} s, every checkpoint whole, every resumed run equal"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
