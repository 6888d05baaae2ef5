"""Machine code of CUDA kernels: its options, and the files it is kept in; on the stand-in for CuPy."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import cupy_stub
import pytest
from cupy_fixtures import install, no_device_is_kept, stub  # noqa: F401  fixtures

from bppsa_cupy.devices import cubins
from bppsa_cupy.devices.cubins import OPTIONS, machine_code
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import VARIANTS, Variant

RELU = KERNELS["relu_fill"]


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The stand-in, whose machine code is kept below `tmp_path`."""
    monkeypatch.setattr(cubins, "kept_in", lambda: tmp_path)
    monkeypatch.setattr(cupy_stub.Nvrtc, "compiled", [])
    return install(monkeypatch)


def options_of(variant: Variant = VARIANTS[0]) -> list[tuple[str, ...]]:
    """The options of what was compiled of the kernel's variant."""
    return [options for text, options in cupy_stub.Nvrtc.compiled if text == RELU.source(variant)]


def test_no_option_but_ours_is_given(cupy: ModuleType) -> None:
    machine_code(cupy, RELU, VARIANTS[0])
    assert options_of() == [OPTIONS]
    for word in ("ftz", "fast", "prec-div", "prec-sqrt", "fmad"):
        assert word not in " ".join(OPTIONS), "denormals stay, tanh and sigmoid are within 4 ulp"


def test_what_is_kept_is_taken(cupy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a later process; another text, architecture, version or option has a file of its own."""
    files = [machine_code(cupy, RELU, VARIANTS[0]), machine_code(install(monkeypatch), RELU, VARIANTS[0])]
    assert files[0] == files[1] and len(options_of()) == 1
    assert files[0].read_bytes() == cupy_stub.Nvrtc.HEADER + RELU.source(VARIANTS[0]).encode()
    others = {machine_code(cupy, RELU, VARIANTS[2])}
    cupy.cuda.nvrtc.getVersion = lambda: (13, 0)
    others.add(machine_code(cupy, RELU, VARIANTS[0]))
    cupy.__version__ = "99"
    others.add(machine_code(cupy, RELU, VARIANTS[0]))
    monkeypatch.setattr(cupy.cuda, "Device", lambda: SimpleNamespace(compute_capability="75"))
    others.add(machine_code(cupy, RELU, VARIANTS[0]))
    monkeypatch.setattr(cubins, "OPTIONS", (*OPTIONS, "-G"))
    others.add(machine_code(cupy, RELU, VARIANTS[0]))
    assert len(others - {files[0]}) == 5 and len(options_of()) == 5


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", None], ids=["empty", "cut", "a bit"])
def test_a_damaged_file_is_made_anew(cupy: ModuleType, damage: bytes | None) -> None:
    file = machine_code(cupy, RELU, VARIANTS[0])
    right = file.read_bytes()
    file.write_bytes(right[:99] + bytes([right[99] ^ 1]) + right[100:] if damage is None else damage)
    assert machine_code(cupy, RELU, VARIANTS[0]) == file and file.read_bytes() == right
    assert len(options_of()) == 2
    assert list(file.parent.iterdir()) == [file]
