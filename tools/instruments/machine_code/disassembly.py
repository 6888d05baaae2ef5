"""A cubin as instructions, by nvdisasm."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools.instruments.machine_code.instructions import Instruction, read_instruction

PACKAGE = "nvidia-cuda-nvdisasm"

LABEL = re.compile(r"^([.$]\S+):")
SECTION = re.compile(r"^\t\.section\t\.text\.(\w+)")
LINE = re.compile(r'^\t//## File "[^"]*", line (\d+)')
FIRST_WORD = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);\s*/\* 0x[0-9a-f]{16} \*/")
SECOND_WORD = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/")


class DisassemblyError(BppsaError):
    """nvdisasm is missing, or does not read a cubin."""


@dataclass(frozen=True)
class Disassembly:
    """The code of one kernel: its instructions in their order, and the numbers of those that labels name."""

    kernel: str
    instructions: list[Instruction]
    labels: dict[str, int]

    def index_of(self, label: str) -> int:
        """The number of the instruction that `label` names."""
        return self.labels[label]


@functools.cache
def nvdisasm() -> str | None:
    """The program, of pip's package or on the path; None where there is none."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "nvdisasm":
            return str(file.locate())
    return shutil.which("nvdisasm")


@functools.cache
def nvdisasm_version() -> str:
    """The program's version. Raises DisassemblyError where it is missing."""
    found = re.search(r"\bV(\d+(?:\.\d+)*)", _run("--version"))
    return found[1] if found else "unknown"


def _run(*arguments: str) -> str:
    program = nvdisasm()
    if program is None:
        raise DisassemblyError(f"nvdisasm is missing: pip install {PACKAGE} (the extra test has it)")
    result = subprocess.run([program, *arguments], capture_output=True, encoding="utf-8", check=False)
    if result.returncode:
        raise DisassemblyError(f"nvdisasm refuses {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def disassemble(code: bytes, kernel: str) -> Disassembly:
    """The instructions of the entry point `kernel` of a cubin.

    Raises DisassemblyError where nvdisasm is missing, refuses the cubin or finds no such entry point.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(code)
        listing = _run("--print-code", "--print-instruction-encoding", "--print-line-info", file.name)
    return read_listing(listing, kernel)


def read_listing(text: str, kernel: str) -> Disassembly:
    """What nvdisasm printed, of the section of one kernel. Raises DisassemblyError where it has none."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    inside, line, first = False, 0, ("0", "")
    for row in text.splitlines():
        if section := SECTION.match(row):
            inside = section[1] == kernel
        elif not inside:
            continue
        elif found := LINE.match(row):
            line = int(found[1])
        elif found := LABEL.match(row):
            labels[found[1]] = len(instructions)
        elif found := FIRST_WORD.match(row):
            first = (found[1], found[2])
        elif (found := SECOND_WORD.match(row)) and first[1]:
            instructions.append(read_instruction(int(first[0], 16), first[1], line, int(found[1], 16)))
            first = ("0", "")
    if not instructions:
        raise DisassemblyError(f"the cubin has no code of {kernel}")
    return Disassembly(kernel, instructions, labels)
