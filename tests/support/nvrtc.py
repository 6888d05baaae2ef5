"""NVRTC without a GPU: compile CUDA C++ for one target and read registers and spills of kernels."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import zlib
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bppsa_cupy.devices.cubins import OPTIONS
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant
from bppsa_cupy.system.compilation import kept_in
from bppsa_cupy.system.files import whole_file


class NvrtcError(BppsaError):
    """NVRTC is missing, or a text does not compile: then the message is the compiler's."""


class Compiled(NamedTuple):
    """Machine code of one text for one target (a cubin), and what the assembler said of it."""

    code: bytes
    report: str

    @property
    def registers(self) -> int:
        """The most registers a thread of any entry point."""
        return max((int(count) for count in re.findall(r"Used (\d+) registers", self.report)), default=0)

    @property
    def spill_bytes(self) -> int:
        """Bytes a thread that spills store and load, of all functions."""
        spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", self.report)
        return sum(int(stores) + int(loads) for stores, loads in spills)


@functools.cache
def nvrtc() -> ctypes.CDLL | None:
    """NVRTC's library, from pip's packages or the system; None where there is none. The environment's
    BPPSA_NVRTC names another one by its path. Raises NvrtcError where that cannot be loaded."""
    if chosen := os.environ.get("BPPSA_NVRTC"):
        try:
            return ctypes.CDLL(chosen)
        except OSError as error:
            raise NvrtcError(f"BPPSA_NVRTC is {chosen}, which is no library that loads: {error}") from error
    for name in (*_packaged(), "libnvrtc.so", "libnvrtc.so.12", "libnvrtc.so.13"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _packaged() -> Iterator[str]:
    """The libraries of nvidia-cuda-nvrtc-cu12 and of nvidia-cuda-nvrtc, which is CUDA 13's."""
    for package in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from map(str, sorted(Path(folder, "lib").glob("libnvrtc.so.*")))


def _library() -> ctypes.CDLL:
    library = nvrtc()
    if library is None:
        raise NvrtcError("NVRTC is missing: pip install nvidia-cuda-nvrtc-cu12 (the extra test has it)")
    return library


@functools.cache
def version() -> tuple[int, int]:
    """NVRTC's major and minor version. Raises NvrtcError where it is missing."""
    library, major, minor = _library(), ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def targets_known() -> frozenset[str]:
    """Targets that NVRTC compiles for, as "sm_90". Raises NvrtcError where it is missing."""
    library, count = _library(), ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    return frozenset(f"sm_{number}" for number in numbers)


def compile_text(text: str, target: str) -> Compiled:
    """Compile to machine code of `target`, as "sm_90", with CudaDevice's options.

    What compiled is kept in the user's cache folder, by the content of text and options and the compiler's
    version, and given again. Raises NvrtcError with the compiler's log where the text does not compile.
    """
    options = [*OPTIONS, f"--gpu-architecture={target}", "--ptxas-options=-v"]
    content = repr((version(), options, text)).encode()
    path = kept_in() / "nvrtc" / f"{hashlib.sha256(content).hexdigest()}.z"
    if path.exists():
        report, _, code = zlib.decompress(path.read_bytes()).partition(b"\0")
        return Compiled(code, report.decode())
    made = _compile(text, target, options)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        temporary.write_bytes(zlib.compress(made.report.encode() + b"\0" + made.code, 1))
    return made


def _compile(text: str, target: str, options: list[str]) -> Compiled:
    library = _library()
    program = ctypes.c_void_p()
    status = library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    if status:
        raise NvrtcError(f"nvrtcCreateProgram gave status {status}")
    try:
        packed = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvrtcCompileProgram(program, len(options), packed)
        report = _read(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
        report = report.rstrip(b"\0")
        if status:
            raise NvrtcError(f"{target}: {report.decode()}")
        code = _read(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return Compiled(code, report.decode())


def _read(
    size_of: ctypes._NamedFuncPointer, read: ctypes._NamedFuncPointer, program: ctypes.c_void_p
) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    read(program, buffer)
    return buffer.raw


#: Turing, Ampere (data centre and desktop), Hopper, Blackwell.
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_120")
#: Those that `make check` compiles for; `--all-targets` (`make compile`) takes all.
USUAL = ("sm_75", "sm_90")
#: Those for which it compiles the widest layout of float32 alone.
WIDEST = ("sm_75",)


@dataclass(frozen=True)
class Usage:
    """What one compiled kernel takes: registers and bytes of spills per thread."""

    kernel: str
    variant: Variant
    target: str
    registers: int
    spill_bytes: int


def measure(text: str, name: str, variant: Variant, target: str) -> Usage:
    """Compile one text and read what its entry `name` takes out of the assembler's report."""
    made = compile_text(text, target)
    if not made.registers:
        raise NvrtcError(f"{name}, {target}: no entry point in {made.report!r}")
    return Usage(name, variant, target, made.registers, made.spill_bytes)


def measure_kernel(kernel: Kernel, targets: Iterable[str], widest: Container[str] = ()) -> list[Usage]:
    """Compile for every target every variant that a kernel has there, on all cores; for targets in `widest`
    the widest layout of float32 alone."""
    work = []
    for target in targets:
        variants = kernel.variants(ARCHITECTURES[target].shared_bytes)
        if target in widest:
            variants = tuple(v for v in variants if (v.real, v.index) == ("float32", "uint32"))[-1:]
        work += [(kernel.source(v), kernel.name, v, target) for v in variants]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda arguments: measure(*arguments), work))
