"""Machine code of CUDA kernels: compiled by NVRTC with the options below alone, and kept on disk.

CuPy's own way from text to kernel adds -ftz=true, which takes denormal float32 for 0: the bounds of tanh,
sigmoid and exp do not hold then.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant
from bppsa_cupy.system.compilation import compiling, kept_in
from bppsa_cupy.system.files import whole_file

#: No fast-math and denormals as they are: tanh and sigmoid stay within 4 ulp. Line information serves the
#: profilers.
OPTIONS = ("--std=c++17", "-lineinfo")
#: The oldest NVRTC that the texts are written for.
LEAST_NVRTC = (12, 4)
#: The oldest GPUs that they are compiled and tried for, by their compute capability, 10 times: Turing.
LEAST_ARCHITECTURE = 75


class TooOldError(DeviceError):
    """A driver, CuPy or NVRTC exists but is too old. device='auto' reports it too."""


def check_architecture(architecture: str) -> None:
    """Raise TooOldError unless there are kernels for GPUs of this compute capability, as CuPy gives it."""
    if int(architecture) < LEAST_ARCHITECTURE:
        present, least = (f"{digits[:-1]}.{digits[-1]}" for digits in (architecture, str(LEAST_ARCHITECTURE)))
        raise TooOldError(
            f"the GPU has compute capability {present} (sm_{architecture}), but the kernels need {least} "
            f"(sm_{LEAST_ARCHITECTURE}) or newer: use device='host'"
        )


def machine_code(cupy: ModuleType, kernel: Kernel, variant: Variant) -> Path:
    """A file of the kernel's machine code for the current GPU: a cubin, or PTX where the GPU is newer than
    NVRTC.

    It is kept below `kept_in()`, named by the digest of all it was made of (text, options, architecture,
    versions of NVRTC and CuPy) and by the digest of its content; one that does not hold what its name says
    is made anew. Files are written whole, so processes may compile at the same time. Where the folder
    cannot be written, the code is this process's own. A compilation is announced (`compiling`). Raises
    DeviceError with the compiler's words, and for a GPU that is too old, before anything is compiled.
    """
    architecture = cupy.cuda.Device().compute_capability
    check_architecture(architecture)
    source, folder = kernel.source(variant), kept_in() / "cuda"
    stem = cubin_stem(kernel, variant, architecture, cupy.cuda.nvrtc.getVersion(), cupy.__version__)
    for file in sorted(folder.glob(f"{stem}-*.cubin")):
        with suppress(OSError):
            if file.name == cubin_name(stem, file.read_bytes()):
                return file
            file.unlink()
    with compiling(kernel.name):
        code = _compile(cupy, kernel.name, source)
    name = cubin_name(stem, code)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _written(folder / name, code)
    except (OSError, DeviceError):
        return _written(Path(_own_folder().name) / name, code)


def cubin_stem(
    kernel: Kernel, variant: Variant, architecture: str, nvrtc: tuple[int, int], cupy_version: str
) -> str:
    """The start of a file's name: the kernel and the digest of all that its machine code depends on."""
    made_of = repr((kernel.source(variant), OPTIONS, architecture, nvrtc, cupy_version))
    return f"{kernel.name}-{_digest(made_of.encode())}"


def cubin_name(stem: str, code: bytes) -> str:
    """The name of the file that holds this machine code."""
    return f"{stem}-{_digest(code)}.cubin"


def _compile(cupy: ModuleType, name: str, source: str) -> bytes:
    """The code that NVRTC makes of a text for the current GPU. It is compiled in memory: CuPy would write
    the text to a file in the locale's encoding."""
    compiler = cupy.cuda.compiler
    try:
        code, _ = compiler.compile_using_nvrtc(source, OPTIONS, cache_in_memory=True)
    except compiler.CompileException as error:
        present = tuple(cupy.cuda.nvrtc.getVersion())
        version, least = (".".join(map(str, numbers)) for numbers in (present, LEAST_NVRTC))
        needed = f" ({least} or newer is needed)" if present < LEAST_NVRTC else ""
        raise DeviceError(
            f"NVRTC {version}{needed} cannot compile {name} for compute capability "
            f"{cupy.cuda.Device().compute_capability}: {error}"
        ) from error
    return code.encode() if isinstance(code, str) else bytes(code)


def _written(file: Path, code: bytes) -> Path:
    with whole_file(file, error=DeviceError) as temporary:
        temporary.write_bytes(code)
    return file


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]


@cache
def _own_folder() -> Any:
    """A folder that goes with the process: CuPy loads a file again for each GPU."""
    return TemporaryDirectory(prefix="bppsa-cupy-")
