"""Training over ranks of which one is killed: nothing runs on, and a resumed run is as one never stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import mpi

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
    """How many steps the log holds."""
    path = folder / "log.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def ranks_of(launcher: int) -> list[int]:
    """The process ids of the ranks that a launcher has started."""
    processes = [launcher]
    for process in processes:
        try:
            children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8")
        except OSError:  # it has ended
            continue
        processes += map(int, children.split())
    return list(filter(is_rank, processes))


def is_rank(process: int) -> bool:
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"python" in Path(os.fsdecode(command[0])).name.encode() and b"bppsa_cupy.tools.train" in command


def kill_and_resume(folder: Path, seed: int, expected: list[float], ranks: int = 4) -> None:
    """Kill a random rank after a random step, and resume on another number of ranks."""
    draw = random.Random(seed)
    running = train(folder, ranks)
    step = draw.randrange(len(expected))
    while steps_of(folder) < max(step, 1) and running.poll() is None:
        time.sleep(0.002)
    victims = ranks_of(running.pid)
    if victims:
        os.kill(draw.choice(victims), signal.SIGKILL)
    ended = mpi.finish(running, limit=30)
    assert ended.returncode != 0 or len(losses(folder)) == len(expected)
    end = time.monotonic() + 5
    while any(map(is_rank, victims)):
        assert time.monotonic() < end, "ranks run on after the kill"
        time.sleep(0.01)
    checkpoint = folder / "net.h5"
    again = ["--resume", str(checkpoint)] if checkpoint.exists() else []
    resumed = mpi.finish(train(folder, draw.choice([1, 2, 3]), *again))
    assert resumed.returncode == 0, resumed.stderr
    assert losses(folder) == expected
