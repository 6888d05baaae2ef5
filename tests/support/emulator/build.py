"""Compiling .cu texts with g++ into shared objects, kept in a folder named by what made them.

A text is compiled as `Kernel.source(variant)` gives it, with one change: `extern __shared__ T x[];`
becomes a macro of the header, since g++ has no storage class that means the same. An entry that
unpacks the arguments is appended; it is made from `Kernel.parameters`, so a text whose parameters
differ from its .py file does not compile.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bppsa_cupy.raw_kernels.kernel import C_NAMES, Parameter

HEADERS = Path(__file__).parent
FLAGS = ("-std=c++17", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing",
         "-ffp-contract=off", "-fno-omit-frame-pointer", "-w", "-Winvalid-pch")  # fmt: skip
PLAIN_FLAGS = ("-O1",)
#: A call before each access to memory, to races.cpp instead of ThreadSanitizer's own library.
RACE_FLAGS = ("-O1", "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", "-DEMULATOR_RACES")
RACE_LIBRARIES = ("-nodefaultlibs", "-lstdc++", "-lm", "-lgcc_s", "-lc")
SANITIZER_FLAGS = ("-O0", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
#: The scheduler, and what finds races: compiled once, and linked with every kernel.
LAUNCH_OBJECT, RACES_OBJECT = "launch.o", "races.o"
DYNAMIC_SHARED = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
CLUSTER_DIMS = re.compile(r"__cluster_dims__\(\s*(\w+)")
LAUNCH_BOUND = re.compile(r"__launch_bounds__\(\s*([\w* ]+?)\s*[,)]")


class EmulationError(Exception):
    """A kernel does not compile with g++, or broke a rule while it ran."""


def sanitizing() -> bool:
    """Whether kernels are compiled with AddressSanitizer and UBSan (BPPSA_EMULATOR_SANITIZE=1)."""
    return os.environ.get("BPPSA_EMULATOR_SANITIZE") == "1"


def without_preload() -> dict[str, str]:
    """The environment of compilers and their tools: a preloaded sanitizer is for the kernels alone."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def compiler() -> str | None:
    """The path of g++, or None."""
    return shutil.which("g++")


def translate(text: str, name: str, parameters: Sequence[Parameter]) -> str:
    """The C++ text for g++: the same lines, in a namespace of their own, and the entry after them."""
    types = [
        parameter.declaration().removesuffix(parameter.name).strip()
        if parameter.is_array
        else C_NAMES[parameter.type]
        for parameter in parameters
    ]
    unpacked = ", ".join(
        f"*static_cast<{kind.replace('__restrict__', '')}*>(arguments[{position}])"
        for position, kind in enumerate(types)
    )
    bound, cluster = LAUNCH_BOUND.search(text), CLUSTER_DIMS.search(text)
    visible = 'extern "C" __attribute__((visibility("default")))'
    body = DYNAMIC_SHARED.sub(r"EMULATOR_DYNAMIC_SHARED(\1, \2);", text)
    return (
        f"namespace {{ {body}\n}}\n"
        f"static void (*const emulator_kernel)({', '.join(types)}) = {name};\n"
        f"{visible} void emulator_entry(void** arguments) {{ emulator_kernel({unpacked}); }}\n"
        f"{visible} const int emulator_launch_bound = {bound.group(1) if bound else 1024};\n"
        f"{visible} const int emulator_cluster = {cluster.group(1) if cluster else 1};\n"
        f"{visible} const bool emulator_cooperative = {str('barrier_grid_wait' in text).lower()};\n"
    )


def compile_text(
    text: str,
    name: str,
    parameters: Sequence[Parameter],
    defines: tuple[str, ...] = (),
    *,
    races: bool = False,
) -> Path:
    """The shared object of one kernel text, compiled if it is not kept from before; with a look-out for
    `races`, for which there are no sanitizers then.

    Raises EmulationError with g++'s words where it does not compile.
    """
    checks = RACE_FLAGS if races else SANITIZER_FLAGS if sanitizing() else PLAIN_FLAGS
    flags = FLAGS + checks + tuple(f"-D{define}" for define in defines)
    folder = _headers_folder(flags)
    translated = translate(text, name, parameters)
    stem = f"{name}-{hashlib.sha256(translated.encode()).hexdigest()[:16]}"
    library = folder / f"{stem}.so"
    if library.exists():
        return library
    source = folder / f"{stem}.cpp"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        draft = Path(scratch, source.name)
        draft.write_text(translated, encoding="utf-8")
        os.replace(draft, source)
        built = Path(scratch, library.name)
        _run(name, *flags, "-shared", "-Wl,-Bsymbolic", "-include", str(folder / "cuda_emulator.hpp"),
             str(source), str(folder / LAUNCH_OBJECT),
             *((str(folder / RACES_OBJECT), *RACE_LIBRARIES) if races else ()), "-o", str(built))  # fmt: skip
        os.replace(built, library)
    return library


def _run(subject: str, *arguments: str) -> None:
    program = compiler()
    if program is None:
        raise EmulationError("the emulator needs g++: install it, or run the tests without it")
    done = subprocess.run(
        [program, *arguments], env=without_preload(), capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise EmulationError(f"{subject} does not compile with g++:\n{done.stderr}")


@functools.cache
def _headers_folder(flags: tuple[str, ...]) -> Path:
    """The folder of what these flags and headers make: the header precompiled, launch.cpp and races.cpp."""
    state = hashlib.sha256(repr((flags, _compiler_version())).encode())
    headers = sorted(HEADERS.glob("*.[ch]pp"))
    for header in headers:
        state.update(header.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base, "bppsa-cupy", "emulator", state.hexdigest()[:16])
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    for header in headers:
        shutil.copy(header, scratch)
    top = scratch / "cuda_emulator.hpp"
    _run("the emulator's header", *flags, "-x", "c++-header", str(top), "-o", f"{top}.gch")
    _run("launch.cpp", *flags, "-c", str(scratch / "launch.cpp"), "-o", str(scratch / LAUNCH_OBJECT))
    if "-DEMULATOR_RACES" in flags:
        _run("races.cpp", *FLAGS, "-O2", "-DEMULATOR_RACES", "-c", str(scratch / "races.cpp"),
             "-o", str(scratch / RACES_OBJECT))  # fmt: skip
    try:
        scratch.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(scratch)
    return folder


@functools.cache
def _compiler_version() -> str:
    done = subprocess.run(
        [compiler() or "g++", "--version"], capture_output=True, encoding="utf-8", check=False
    )
    return done.stdout
