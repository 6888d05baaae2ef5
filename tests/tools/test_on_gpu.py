"""Programs of make gpu, rehearsed on the host, on the emulator and on the stand-in for CuPy."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernels_on_device
import numpy as np
import nvrtc
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant
from bppsa_cupy.tools.benchmarks import beside
from bppsa_cupy.tools.on_gpu import clocks, lines, machine, nccl, parts, passes, products, times

pytestmark = pytest.mark.long

SMALL = ("--hidden", "4,6", "--steps", "20,60", "--batch-size", "2")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, Any]]]:
    """The lines that were printed so far."""
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(autouse=True)
def little_work_takes_the_clocks_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "BUSY", dict.fromkeys(clocks.BUSY, 1))
    monkeypatch.setattr(clocks, "BETWEEN", 0.01)
    monkeypatch.setattr(clocks, "LEAST", 0.1)


# ---- times ----


def test_times_have_a_line_a_size_and_way(told: Callable[[], list[dict[str, Any]]]) -> None:
    assert times.main(["--device", "host", "--like", "chunk_scan|rnn.*_backward", *SMALL]) == 0
    found = told()
    assert {(line["hidden"], line["steps"]) for line in found} == {(h, t) for h in (4, 6) for t in (20, 60)}
    assert all(line["seconds"] > 0 and line["samples"] >= 2 and len(line["quartiles"]) == 2 for line in found)
    walks = [line for line in found if line["kernel"] != "chunk_scan"]
    assert {line["chunk"] == line["steps"] for line in walks} == {True, False}
    assert all(line["chunk"] is None for line in found if line["kernel"] == "chunk_scan")


def test_times_of_one_launch_on_the_stand_in(
    stub: CudaDevice,
    told: Callable[[], list[dict[str, Any]]],
) -> None:
    words = ["--like", "chunk_scan", "--hidden", "4", "--steps", "20", "--processes", "1", "--once"]
    assert times.main(words) == 0
    ahead, spun_up, line = told()
    assert ahead["compiled"] == 1 and ahead["seconds"] > 0 and spun_up["spun_up"] > 0
    assert line["kernel"] == "chunk_scan" and line["samples"] == 1 and line["seconds"] > 0
    assert line["clocks"].keys() == {"unknown"} == spun_up["clocks"].keys()
    assert get_device("cuda").launched["chunk_scan"] == 1


def test_what_is_compiled_ahead_is_what_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--device", "host", "--like", "gru_.*|.*_scan", "--hidden", "4,40,200", "--steps", "20"]
    device, timed = get_device("host"), set()

    def prepare(self: Device, kernel: Any, variant: Variant, *others: Any) -> Callable[[], None]:
        timed.add((kernel.name, variant))
        return lambda: None

    monkeypatch.setattr(type(device), "_prepare", prepare)
    assert times.main(words) == 0
    kernels = [kernel for name, kernel in times.over_time().items() if re.fullmatch("gru_.*|.*_scan", name)]
    assert set(times.variants_of(device, kernels, times.parser().parse_args(words))) == timed
    assert len(timed) > len(kernels)


def test_sizes_that_would_take_too_long_are_told(
    monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(times, "LONGEST", 0.0)
    assert times.main(["--device", "host", "--like", "newton_scan", *SMALL]) == 0
    assert [line.get("left_out", "").partition(" took ")[0] for line in told()] == 2 * ["", "20 steps"]


def test_a_kernel_that_does_not_fit_is_told_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[dict[str, Any]]]
) -> None:
    def check(self: Device, kernel: Any, shape: Any) -> None:
        if kernel.name == "chunk_scan":
            raise DeviceError("a block takes too much")

    monkeypatch.setattr(Device, "check_shared", check)
    monkeypatch.setattr(get_device("host"), "_found", {})  # launches that were checked before
    assert times.main(["--device", "host", "--like", ".*_scan", *SMALL]) == 1
    found = told()
    assert {line["kernel"] for line in found if "error" in line} == {"chunk_scan"}
    assert {line["kernel"] for line in found if "seconds" in line} == {"newton_scan"}


def test_a_single_step_has_a_line_a_width(told: Callable[[], list[dict[str, Any]]]) -> None:
    assert times.main(["--device", "host", "--like", "rnn_tanh_forward_step", *SMALL]) == 0
    assert [(line["hidden"], line["steps"], "seconds" in line) for line in told()] == [
        (4, 1, True),
        (6, 1, True),
    ]


@pytest.mark.parametrize("name", times.over_time())
def test_arguments_fit_every_kernel_over_time(name: str) -> None:
    kernel, device = KERNELS[name], get_device("host")
    scalars = times.scalars_of(kernel, 5, 70, 3)
    arguments = lines.filled_arguments(device, kernel, Variant(), scalars, 0.5)
    device.bind(kernel, *arguments)
    read = [
        a for p, a in zip(kernel.parameters, arguments, strict=True) if p.type == "real" and p.role == "in"
    ]
    assert all(array.std() > 0.1 for array in read if array.size > 10)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 21])
def test_an_array_is_filled_again_and_again(size: int) -> None:
    array = np.full(size, -1.0)
    lines.fill(array, np.arange(8.0))
    assert np.array_equal(array, np.arange(size) % 8)


# ---- passes ----


def test_passes_have_a_line_a_way(told: Callable[[], list[dict[str, Any]]]) -> None:
    words = ["--device", "host", "--layers", "RNN", "--hidden", "4", "--steps", "20,60", "--batch-size", "2"]
    assert passes.main(words) == 0
    found = told()
    ways = {"forward serial", "forward newton", "backward linear", "backward blelloch"}
    assert {(line["steps"], line["way"]) for line in found} == {(t, way) for t in (20, 60) for way in ways}
    for line in found:
        assert line["seconds"] > 0 and ("newton" in line["ran"][0]) == (line["way"] == "forward newton")
        assert ("chunked" in line["ran"][0]) == (line["way"] == "backward blelloch")


def test_passes_that_would_take_too_long_are_told(
    monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(passes, "LONGEST", 0.0)
    words = ["--device", "host", "--layers", "RNN", "--hidden", "4", "--steps", "20,60", "--batch-size", "2"]
    assert passes.main(words) == 0
    assert {line["way"] for line in told() if "left_out" in line} == {
        "forward serial", "forward newton", "backward linear", "backward blelloch",
    }  # fmt: skip


# ---- the machine ----


def test_the_machine_is_described(
    stub: CudaDevice,
    told: Callable[[], list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda program: None)
    monkeypatch.setattr(machine, "launch_seconds", lambda device: 1e-6)
    monkeypatch.setattr(machine, "graph_gap_seconds", lambda device: 1e-7)
    assert machine.main([]) == 0
    first, gpu, clocks, _, launch, gap, cluster = told()
    assert first["gpu"] == "a stand-in" and first["versions"]["cuda_driver"] == 12090
    assert gpu["attributes"]["MultiProcessorCount"] == 132 and gpu["nvrtc"] == [0, 0]
    assert clocks == {"nvidia_smi": "nvidia-smi is not on the path"}
    assert (launch["launch_seconds"], gap["graph_gap_seconds"]) == (1e-6, 1e-7) and launch["clocks"]
    assert cluster["cluster"].startswith("failed: ")  # the stand-in takes machine code alone


def test_the_cluster_kernel_compiles() -> None:
    if nvrtc.nvrtc() is None:
        pytest.skip("needs NVRTC")
    assert nvrtc.compile_text(machine.CLUSTER, "sm_90").registers


#: NVML's calls that are taken, of a GPU whose clock rises by 200 MHz a look up to 1980.
NVML = """
extern "C" {
static unsigned sm = 345;
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **gpu) {
    *gpu = &sm;
    return bus[0] == '0' ? 0 : 2;
}
int nvmlDeviceGetClockInfo(void *gpu, int which, unsigned *mhz) {
    if (gpu != &sm) return 2;
    *mhz = which == 2 ? 2619 : which == 1 ? sm : 0;
    if (which == 1) sm = sm + 200 > 1980 ? 1980 : sm + 200;
    return 0;
}
int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *celsius) { *celsius = 41; return sensor; }
}
"""


def test_clocks_are_up_and_stand_beside_each_number(
    stub: CudaDevice,
    told: Callable[[], list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rehearsal on a stand-in for the driver's library."""
    text, library = tmp_path / "nvml.cpp", tmp_path / "libnvidia-ml.so.1"
    text.write_text(NVML, encoding="utf-8")
    subprocess.run(["g++", "-shared", "-fPIC", text, "-o", library], check=True)
    faked = ctypes.CDLL(str(library))
    monkeypatch.setattr(clocks, "nvml", lambda: faked)
    words = ["--like", "chunk_scan", "--hidden", "4", "--steps", "20", "--processes", "1", "--once"]
    assert times.main(words) == 0
    _, spun_up, line = told()
    assert spun_up["before"] == {"sm_mhz": 345, "memory_mhz": 2619, "celsius": 41}
    assert spun_up["clocks"]["sm_mhz"] == 1980 == line["clocks"]["sm_mhz"] and line["clocks"]["celsius"] == 41
    assert clocks.clocks("no such address") == {"unknown": "NVML's handle ended with 2"}


# ---- PyTorch, products, NCCL ----


@pytest.mark.usefixtures("pytorch")
def test_steps_beside_pytorchs_have_a_line_a_case(
    told: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--device", "host", "--cases", "T10", "--cells", "gru", "--hidden", "4", "--batch", "1,3"]
    assert beside.main([*words, "--steps", "7", "--repeats", "2"]) == 0
    *found, last = told()
    assert [(one["name"], one["cell"], one["batch"]) for one in found] == [
        ("T10", "rnn", 16),
        ("", "gru", 1),
        ("", "gru", 3),
    ]
    assert all(one["overall"]["ratio"] > 0 and len(one["ways"]) == 2 for one in found) and last["ended"]
    monkeypatch.setattr(beside, "TOLERANCE", -1.0)
    assert beside.main([*words, "--steps", "7", "--repeats", "2"]) == 1
    assert "differs" in told()[0]["error"]


def test_products_agree_with_matmul(told: Callable[[], list[dict[str, Any]]]) -> None:
    assert products.main(["--device", "host", "--hidden", "5,33", "--steps", "7", "--batch-size", "3"]) == 0
    found = told()
    assert [(line["hidden"], line["product"]) for line in found] == [
        (hidden, name) for hidden in (5, 33) for name in ("project", "weight gradient")
    ]
    assert all(
        line["apart"] < 1e-5 and line["ours"]["seconds"] > 0 < line["matmul"]["seconds"] for line in found
    )


def test_nccl_without_its_library_is_told(
    stub: CudaDevice,
    told: Callable[[], list[dict[str, Any]]],
) -> None:
    assert nccl.main([]) == 1
    assert "CuPy finds no NCCL" in told()[0]["error"]


def test_launches_are_timed_behind_one_another() -> None:
    device = get_device("host")
    before = device.launched["step_count"]
    assert machine.launch_seconds(device, 10) > 0
    assert device.launched["step_count"] == before + 13


# ---- kernels against their twins ----


def test_kernels_agree_on_the_stand_in(
    stub: CudaDevice,
    told: Callable[[], list[dict[str, Any]]],
) -> None:
    assert kernels_on_device.main(["--like", "relu_vjp", "--processes", "1"]) == 0
    found = told()
    assert {line["dtype"] for line in found} == {"float32", "float64"}
    assert all(line["agrees"] and line["cases"] > 3 and line["worst"] <= 1 for line in found)


def test_what_was_written_stands_for_the_twins(
    told: Callable[[], list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--like", "relu_vjp|adam_step", "--dtypes", "float32", "--processes", "1"]
    file = tmp_path / "out" / "expected.npz"
    assert kernels_on_device.main([*words, "--write", str(file)]) == 0
    monkeypatch.setattr(kernels_on_device, "by_twin", None)  # no twin is asked
    taken = [*words, "--device", "emulated", "--expected", str(file)]
    assert kernels_on_device.main(taken) == 0
    _, *found = told()
    assert all(line["agrees"] and line["against"] == "what was written" for line in found)
    with np.load(file) as stored:
        changed = {name: array + array.dtype.type(1) * ("adam" in name) for name, array in stored.items()}
    np.savez(file, **changed)
    assert kernels_on_device.main(taken) == 1
    found = {line["kernel"]: line for line in told()}
    assert found["relu_vjp"]["agrees"] and "for other cases" in found["adam_step"]["error"]


def test_a_kernel_that_differs_is_told(
    monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[dict[str, Any]]]
) -> None:
    class Wrong(type(get_device("host"))):  # type: ignore[misc]
        def launch(self, kernel: Any, *arguments: Any) -> None:
            super().launch(kernel, *arguments)
            arguments[2][arguments[2] == 0] += 1e-3

    monkeypatch.setattr(kernels_on_device, "make_device", lambda name: Wrong())
    assert kernels_on_device.main(["--like", "relu_vjp", "--dtypes", "float32", "--processes", "1"]) == 1
    (line,) = told()
    assert not line["agrees"] and line["worst"] > 10 and line["case"]["size"] > 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_kernel_whose_outputs_are_not_finite_is_told(
    wrong: float, monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[dict[str, Any]]]
) -> None:
    class Wrong(type(get_device("host"))):  # type: ignore[misc]
        def launch(self, kernel: Any, *arguments: Any) -> None:
            super().launch(kernel, *arguments)
            if arguments[2].size == 1:  # the cases behind it are right
                arguments[2][...] = wrong

    monkeypatch.setattr(kernels_on_device, "make_device", lambda name: Wrong())
    assert kernels_on_device.main(["--like", "relu_vjp", "--dtypes", "float32", "--processes", "1"]) == 1
    (line,) = told()
    assert not line["agrees"] and line["worst"] == np.inf and line["case"]["size"] == 1


def test_a_kernel_that_raises_is_told(
    monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[dict[str, Any]]]
) -> None:
    def refuse(name: str) -> Device:
        raise DeviceError("no device")

    monkeypatch.setattr(kernels_on_device, "make_device", refuse)
    assert kernels_on_device.main(["--like", "relu_vjp", "--dtypes", "float32", "--processes", "1"]) == 1
    assert told()[0]["error"] == "DeviceError: no device"


@pytest.mark.parametrize("name", [name for name in KERNELS if re.fullmatch(parts.SANITIZED, name)])
def test_the_small_case_of_a_sanitized_kernel_has_work(name: str) -> None:
    (case,) = kernels_on_device.cases_of(KERNELS[name], small=True)
    sizes = kernels_on_device.elements_of(KERNELS[name], case)
    assert max(sizes) > 1 and sum(sizes) < 1 << 20
    assert 0 not in KERNELS[name].launch({**case.scalars, "itemsize": 4, "shared_bytes": 48 * 1024}).grid


def test_differences_are_in_parts_of_what_is_allowed() -> None:
    wanted = np.array([1.0, -2.0, np.nan, np.inf])
    assert kernels_on_device._apart(wanted, wanted) == 0
    assert kernels_on_device._apart(np.array([1.0, -2.0, 0.0, np.inf]), wanted) == np.inf
    assert kernels_on_device._apart(wanted + 1e-3, wanted) > 1
    assert kernels_on_device._apart(np.array([1]), np.array([2])) == np.inf
