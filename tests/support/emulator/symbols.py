"""What a compiled kernel text says of itself: where its shared arrays lie, its instructions' lines."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from emulator.build import EmulationError, without_preload


class Memory(NamedTuple):
    """Memory of a launch: where it begins, its bytes, and those of a word."""

    name: str
    address: int
    nbytes: int
    word: int


def static_shared(library: Path, anchor: str, address: int) -> list[Memory]:
    """The static variables of a loaded library's functions that nothing is put into at first, which are its
    __shared__ ones, by the address of its function `anchor`."""
    offsets = {}
    memories = []
    for line in _symbols(library).splitlines():
        *numbers, kind, name = line.split()
        offsets[name] = int(numbers[0], 16)
        if kind in "bB" and (plain := _plain_name(name)):
            memories.append(Memory(plain, offsets[name], int(numbers[1], 16), 1))
    base = address - offsets[anchor]
    return [memory._replace(address=base + memory.address) for memory in memories]


@functools.cache
def _symbols(library: Path) -> str:
    return _output("nm", "-S", "--defined-only", str(library))


def _plain_name(mangled: str) -> str | None:
    """The name of a function's static variable, as g++ mangles it; None of anything else."""
    if not mangled.startswith("_ZZ") or "8emulator" in mangled:
        return None
    for match in re.finditer(r"E(\d+)", mangled):
        name, rest = mangled[match.end() :][: int(match[1])], mangled[match.end() + int(match[1]) :]
        if len(name) == int(match[1]) and re.fullmatch(r"(_\d+_?)?", rest):
            return name
    return None


@functools.cache
def line_of(library: Path, place: int) -> int:
    """The line of the library's own text with the call that returns to this offset; 0: not known."""
    frames = _output("addr2line", "-i", "-e", str(library), hex(place - 1))
    source = re.escape(library.with_suffix(".cpp").name)
    line = re.search(rf"{source}:(\d+)", frames)
    return int(line[1]) if line else 0


def _output(*command: str) -> str:
    done = subprocess.run(command, env=without_preload(), capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise EmulationError(f"{command[0]}, of the binutils that g++ takes, fails:\n{done.stderr}")
    return done.stdout
