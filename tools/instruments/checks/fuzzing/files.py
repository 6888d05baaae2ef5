"""Mutated files: each is refused by an error that names it, or read, in a stated time and memory.

A case follows from seed and index: a format, and one of four mutations, three of them of HDF5 alone:
"bytes" edits bytes; "sealed" edits bytes after the seal and makes the seal anew; "structure" edits what the
file holds, with its seal made anew; "torn" does so and then edits bytes too. A file that makes the HDF5
library loop or crash is explained where reading it with `foreign=True` refuses it by name.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bppsa_cupy.system import hdf5, trial
from fuzzing.children import Played, play_alone
from fuzzing.edits import Edit, apply, draw_edits, fewest
from fuzzing.formats import Format, formats
from fuzzing.judging import judge
from fuzzing.structures import edited

#: Seconds of processor time that a case may take.
SECONDS = 2.0
#: A test that reads one file.
TEST = '''"""Found by `fuzz.py 1 --only files --seed {seed} --first {index} --cases 1`."""

import base64
import zlib

from fuzzing.files import play

CONTENT = (
{lines})


def test_files_{seed}_{index}(tmp_path):
    outcome, why = play({name!r}, zlib.decompress(base64.b85decode(CONTENT)), tmp_path)
    assert outcome in ("refused", "accepted"), why
'''
#: The mutations of a sealed format, and how often each is played.
SEALED = ("bytes", "sealed", "sealed", "structure", "structure", "torn")
UNSEALED = ("bytes", "bytes", "structure", "torn")


@dataclass(frozen=True)
class Case:
    """One mutated file."""

    format: Format
    mutation: str
    base: bytes
    edits: list[Edit]

    @property
    def content(self) -> bytes:
        mutated = apply(self.base, self.edits)
        return sealed(mutated) if self.mutation != "bytes" and self.format.sealed else mutated


class Files:
    """The cases of a seed; `folder` is a place for the files."""

    subject, seconds = "files", SECONDS

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder, self.formats = seed, folder, formats(folder)
        for format in self.formats:
            for name, content in format.beside:
                (folder / name).write_bytes(content)

    def _drawn(self, index: int) -> tuple[np.random.Generator, Format, str]:
        """The generator of case `index`, its format and its mutation."""
        rng = np.random.default_rng([self.seed, index])
        format = self.formats[rng.integers(len(self.formats))]
        known = SEALED if format.sealed else UNSEALED if format.hdf5 else ("bytes",)
        return rng, format, known[rng.integers(len(known))]

    def kind(self, index: int) -> str:
        """What case `index` is counted by."""
        return "{1.name} {2}".format(*self._drawn(index))

    def case(self, index: int) -> Case:
        """Case `index`."""
        rng, format, mutation = self._drawn(index)
        base = format.content
        if mutation in ("structure", "torn"):
            base = edited(base, rng, int(rng.choice([1, 1, 2, 3])))
        first = hdf5.USER_BLOCK if format.sealed and mutation != "bytes" else 0
        edits = draw_edits(rng, base, first) if mutation != "structure" else []
        return Case(format, mutation, base, edits)

    def play(self, index: int, foreign: bool = False) -> tuple[str, str]:
        """Write and read case `index`."""
        return self.read(self.case(index), foreign)

    def read(self, case: Case, foreign: bool = False) -> tuple[str, str]:
        """Write and read a case; `foreign` as a reader takes it."""
        path = self.folder / case.format.name
        path.write_bytes(case.content)
        if not foreign:  # the child is one already
            hdf5.try_reading = lambda *_, **options: None
        trial.SECONDS = 1
        outcome, detail = judge(lambda: case.format.read(path, foreign), path.name)
        unseen = case.mutation == "bytes" and case.format.sealed and case.content != case.format.content
        if outcome == "accepted" and unseen:
            return "wrong", "other bytes behind a seal that was not made anew were taken"
        return outcome, detail

    def explain(self, played: Played) -> str:
        """Why a case that ended its child is no fault of ours; "" where it is one."""
        if played.outcome not in ("endless", "died") or not self.case(played.index).format.hdf5:
            return ""
        alone = play_alone(partial(self.play, foreign=True), played.index, trial.PATIENCE * 2.0)
        return alone.detail if alone.outcome == "refused" else ""

    def reproducer(self, played: Played, out: Path) -> str:
        """Write a test of the file with the fewest edits that fail alike; its path."""
        case = self.case(played.index)

        def fails(edits: list[Edit]) -> bool:
            fewer = Case(case.format, case.mutation, case.base, edits)
            return play_alone(lambda _: self.read(fewer), 0, SECONDS).outcome == played.outcome

        least = Case(case.format, case.mutation, case.base, fewest(case.edits, fails))
        path = out / f"test_files_{self.seed}_{played.index}.py"
        text = base64.b85encode(zlib.compress(least.content, 9)).decode()
        lines = "".join(f'    "{text[at : at + 100]}"\n' for at in range(0, len(text), 100))
        given = {"seed": self.seed, "index": played.index, "name": case.format.name, "lines": lines}
        path.write_text(TEST.format(**given), encoding="utf-8")
        return f"{path} ({case.format.name}, {case.mutation}, {len(least.edits)} edits)"


def play(name: str, content: bytes, folder: Path) -> tuple[str, str]:
    """Write `content` as the format `name`, and read it, by the HDF5 library in a child process first."""
    format = next(format for format in formats(folder) if format.name == name)
    for other, beside in format.beside:
        (folder / other).write_bytes(beside)
    (folder / name).write_bytes(content)
    return judge(lambda: format.read(folder / name, True), name)


def sealed(content: bytes) -> bytes:
    """`content`, a sealed file, with the seal that belongs to it."""
    block = hdf5.MAGIC + hashlib.sha256(content[hdf5.USER_BLOCK :]).hexdigest().encode() + b"\n"
    return block.ljust(hdf5.USER_BLOCK, b"\0") + content[hdf5.USER_BLOCK :]
