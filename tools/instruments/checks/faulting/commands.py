"""The commands that write files, on small networks and data, and the folder that each is run in."""

from __future__ import annotations

import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bppsa_cupy.tools import data, jacobians, plan, train

MODEL = """
import bppsa_cupy as bp

def make(input_shape=(1, 8, 8), classes=3, seed=0, dtype="float32", device="auto"):
    layers = [bp.Conv2d(1, 4, 3), bp.ReLU(), bp.Flatten(), bp.Dropout(0.2), bp.Linear(144, classes)]
    return bp.Sequential(layers, input_shape, seed=seed, dtype=dtype, device=device)
"""


@dataclass(frozen=True)
class Command:
    """A command that writes files.

    main     its entry point
    line     its arguments
    outputs  the files it writes; those that grow line by line end with .jsonl
    resume   arguments that go on from what a run that was stopped left
    """

    name: str
    main: Callable[[list[str]], int]
    line: tuple[str, ...]
    outputs: tuple[str, ...]
    resume: tuple[str, ...] = ()

    def again(self, folder: Path) -> tuple[str, ...]:
        """The arguments after a stop: those that go on, where there is something to go on from."""
        return (
            (*self.line, *self.resume) if self.resume and (folder / self.resume[-1]).exists() else self.line
        )


MAKE = "model.py:make"
TRAIN = (
    MAKE,
    "--data",
    "d.npz",
    "--epochs",
    "8",
    "--batch-size",
    "8",
    "--method",
    "bp",
    "--checkpoint",
    "c.h5",
)
BITS, SOUND = ("--length", "200", "--samples", "2000"), ("--rate", "8000", "--workers", "1")
COMMANDS = (
    Command("plan build", plan.main, ("build", MAKE, "-o", "p.h5", "--batch-size", "4"), ("p.h5",)),
    Command("plan flops", plan.main, ("flops", "small.h5", "--json", "f.json"), ("f.json",)),
    Command("plan draw", plan.main, ("draw", "small.h5", "-o", "d.png"), ("d.png",)),
    Command("jacobians dump", jacobians.main, ("dump", MAKE, "-o", "j.h5", "--data", "d.npz"), ("j.h5",)),
    Command("train", train.main, (*TRAIN, "--log", "l.jsonl"), ("c.h5", "l.jsonl"), ("--resume", "c.h5")),
    Command("train with a plot", train.main, (*TRAIN, "--plot", "l.png"), ("c.h5", "l.png")),
    Command("data bitstream", data.main, ("bitstream", *BITS, "-o", "b.h5"), ("b.h5",)),
    Command("data audio", data.main, ("audio", "clips", *SOUND, "-o", "a.h5"), ("a.h5",)),
)  # fmt: skip


def furnish(folder: Path) -> None:
    """Put what the commands read into an empty folder."""
    rng = np.random.default_rng(0)
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    np.savez(folder / "d.npz", x=rng.standard_normal((64, 1, 8, 8)).astype("float32"), y=np.arange(64) % 3)
    for kind in ("cat", "dog"):
        (folder / "clips" / kind).mkdir(parents=True)
        for number in range(2):
            with wave.open(str(folder / "clips" / kind / f"{number}.wav"), "wb") as clip:
                clip.setparams((1, 2, 8000, 0, "NONE", ""))
                clip.writeframes((rng.standard_normal(8000) * 3000).astype("<i2").tobytes())
    make_small(folder / "small.h5")


def make_small(path: Path) -> None:
    """A plan to look at."""
    import bppsa_cupy as bp

    net = bp.Sequential([bp.Linear(4, 3), bp.Tanh(), bp.Linear(3, 2)], (4,), device="host")
    net.plan(batch_size=2).save(path)
