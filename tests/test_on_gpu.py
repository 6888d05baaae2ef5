"""Programs of make gpu, rehearsed on the host, on the emulator and on the stand-in for CuPy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import kernels_on_device
import numpy as np
import pytest
from test_cuda_device import no_device_is_kept, stub  # noqa: F401  fixtures

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant
from bppsa_cupy.tools.on_gpu import lines, machine, parts, passes, times

SMALL = ("--hidden", "4,6", "--steps", "20,60", "--batch-size", "2")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, Any]]]:
    """The lines that were printed so far."""
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines()]


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
    stub: CudaDevice,  # noqa: F811
    told: Callable[[], list[dict[str, Any]]],
) -> None:
    words = ["--like", "chunk_scan", "--hidden", "4", "--steps", "20", "--processes", "1", "--once"]
    assert times.main(words) == 0
    ahead, line, clocks = told()
    assert ahead["compiled"] == 1 and ahead["seconds"] > 0
    assert line["kernel"] == "chunk_scan" and line["samples"] == 1 and line["seconds"] > 0
    assert clocks.keys() == {"nvidia_smi"}
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
    stub: CudaDevice,  # noqa: F811
    told: Callable[[], list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(machine, "launch_seconds", lambda device: 1e-6)
    assert machine.main([]) == 0
    first, gpu, clocks, launch = told()
    assert first["gpu"] == "a stand-in" and first["versions"]["cuda_driver"] == 12090
    assert gpu["attributes"]["MultiProcessorCount"] == 132 and gpu["nvrtc"] == [0, 0]
    assert clocks == {"nvidia_smi": "nvidia-smi is not on the path"} and launch == {"launch_seconds": 1e-6}


def test_launches_are_timed_behind_one_another() -> None:
    device = get_device("host")
    before = device.launched["step_count"]
    assert machine.launch_seconds(device, 10) > 0
    assert device.launched["step_count"] == before + 13


# ---- kernels against their twins ----


def test_kernels_agree_on_the_stand_in(
    stub: CudaDevice,  # noqa: F811
    told: Callable[[], list[dict[str, Any]]],
) -> None:
    assert kernels_on_device.main(["--like", "relu_vjp", "--processes", "1"]) == 0
    found = told()
    assert {line["dtype"] for line in found} == {"float32", "float64"}
    assert all(line["agrees"] and line["cases"] > 3 and line["worst"] <= 1 for line in found)


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
