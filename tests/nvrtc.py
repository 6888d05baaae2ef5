"""NVRTC without a GPU: CUDA C++ text to machine code of one target, and what it takes of the machine."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from bppsa_cupy.devices.cubins import OPTIONS
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant
from bppsa_cupy.system.files import write_text

#: Turing, Ampere (data centre and desktop), Hopper, Blackwell.
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_120")


#: Where reports are kept.
REPORTS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bppsa-cupy" / "nvrtc-reports"


class NvrtcError(Exception):
    """A text does not compile; the message is the compiler's."""


@dataclass(frozen=True)
class Usage:
    """What one compiled kernel takes: registers a thread, and bytes a thread of spills and of stack."""

    kernel: str
    variant: Variant
    target: str
    registers: int
    spill_bytes: int
    stack_bytes: int


#: Where tests leave the usages that the summary of the session prints.
USAGES = pytest.StashKey[list[Usage]]()


@functools.cache
def nvrtc() -> ctypes.CDLL | None:
    """NVRTC's library, from pip's nvidia-cuda-nvrtc-cu12 or the system; None where there is none."""
    for name in (*_packaged(), "libnvrtc.so", "libnvrtc.so.12", "libnvrtc.so.13"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _packaged() -> Iterator[str]:
    try:
        spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
    except ModuleNotFoundError:
        return
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from map(str, sorted(Path(folder, "lib").glob("libnvrtc.so.*")))


@functools.cache
def _version() -> tuple[int, int]:
    library, major, minor = nvrtc(), ctypes.c_int(), ctypes.c_int()
    assert library is not None
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_text(text: str, target: str) -> str:
    """Compile to machine code of `target` with CudaDevice's options; the assembler's report.

    The report of a text that compiled is kept in the user's cache folder, by the content of text and options
    and the compiler's version, and given again. Raises NvrtcError with the compiler's log where the text does
    not compile.
    """
    options = [*OPTIONS, f"--gpu-architecture={target}", "--ptxas-options=-v"]
    content = repr((_version(), options, text)).encode()
    kept = REPORTS / f"{hashlib.sha256(content).hexdigest()}.txt"
    if kept.exists():
        return kept.read_text(encoding="utf-8")
    report = _compile(text, target, options)
    REPORTS.mkdir(parents=True, exist_ok=True)
    write_text(kept, report)
    return report


def _compile(text: str, target: str, options: list[str]) -> str:
    library = nvrtc()
    assert library is not None
    program = ctypes.c_void_p()
    status = library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    if status:
        raise NvrtcError(f"nvrtcCreateProgram gave status {status}")
    try:
        packed = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvrtcCompileProgram(program, len(options), packed)
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(size.value, 1))
        library.nvrtcGetProgramLog(program, log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    report = log.value.decode()
    if status:
        raise NvrtcError(f"{target}: {report}")
    return report


def measure(text: str, name: str, variant: Variant, target: str) -> Usage:
    """Compile one text and read what its entry `name` takes out of the assembler's report."""
    report = compile_text(text, target)
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", report)]
    if not registers:
        raise NvrtcError(f"{name}, {target}: no entry point in {report!r}")
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    stacks = re.findall(r"(\d+) bytes stack frame", report)
    return Usage(
        name,
        variant,
        target,
        max(registers),
        sum(int(stores) + int(loads) for stores, loads in spills),
        max(map(int, stacks), default=0),
    )


def measure_kernel(kernel: Kernel, targets: Iterable[str] = TARGETS) -> list[Usage]:
    """Compile every variant of a kernel for every target, on all cores."""
    work = [(kernel.source(v), kernel.name, v, target) for v in kernel.variants() for target in targets]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda one: measure(*one), work))


def usage_table(usages: Iterable[Usage]) -> list[str]:
    """A line a kernel and variant: registers on sm_90, and the most of all targets."""
    groups: dict[tuple[str, str], list[Usage]] = {}
    for usage in usages:
        variant = f"{usage.variant.real}, {usage.variant.index}"
        groups.setdefault((usage.kernel, variant), []).append(usage)
    lines = [
        f"{'kernel':28} {'variant':17} {'registers':>9} {'most':>5} {'spill bytes':>11} {'stack bytes':>11}"
    ]
    for (kernel, variant), group in sorted(groups.items()):
        hopper = next((str(usage.registers) for usage in group if usage.target == "sm_90"), "-")
        lines.append(
            f"{kernel:28} {variant:17} {hopper:>9} {max(u.registers for u in group):5} "
            f"{max(u.spill_bytes for u in group):11} {max(u.stack_bytes for u in group):11}"
        )
    return lines
