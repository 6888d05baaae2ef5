"""Ways that are measured once on a GPU and kept: through CudaDevice on the stand-in for CuPy.

The stand-in's events are one millisecond apart, so a way that records more events takes longer.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures

from bppsa_cupy.devices import autotune
from bppsa_cupy.devices.autotune import Choices, choices_path
from bppsa_cupy.devices.base import RefusedError
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.distributed import Group

KEY = "work B16"


@pytest.fixture
def tuning(stub: CudaDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CudaDevice:
    """The stand-in where ways are measured, with a cache folder of its own."""
    monkeypatch.setenv("BPPSA_AUTOTUNE", "on")
    monkeypatch.setattr(autotune, "kept_in", lambda: tmp_path / "cache")
    return stub


class Ways:
    """Ways that take so many milliseconds, and which of them were made."""

    def __init__(self, device: CudaDevice, **milliseconds: int) -> None:
        self.made: list[str] = []
        self._device, self._milliseconds = device, milliseconds

    def choose(self, key: str = KEY, default: str = "slow") -> str:
        ways = {name: lambda name=name: self._make(name) for name in self._milliseconds}
        return self._device.choices.choose(key, ways, default)

    def _make(self, name: str):
        self.made.append(name)

        def work() -> None:
            for _ in range(self._milliseconds[name]):
                self._device.xp.cuda.Event().record()

        return work


def again(device: CudaDevice) -> Choices:
    """As a later process begins."""
    device.choices = Choices(device)
    return device.choices


def test_the_quickest_way_is_measured_once_and_kept(tuning: CudaDevice) -> None:
    ways = Ways(tuning, slow=7, quick=2, slower=9)
    before = dict(tuning.launched)
    assert ways.choose() == "quick" and ways.made == ["slow", "quick", "slower"]
    assert ways.choose() == "quick" and len(ways.made) == 3
    again(tuning)
    assert ways.choose() == "quick" and len(ways.made) == 3, "read from the folder"
    assert tuning.choices.used == {KEY: "quick"} and dict(tuning.launched) == before
    assert json.loads(choices_path(tuning.xp).read_text()) == {KEY: "quick"}


def test_another_key_is_measured_anew(tuning: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    blas = SimpleNamespace(getVersion=lambda handle: 12)
    monkeypatch.setattr(tuning.xp.cuda, "cublas", blas, raising=False)
    handle = SimpleNamespace(get_cublas_handle=lambda: 1)
    monkeypatch.setattr(tuning.xp.cuda, "device", handle, raising=False)
    ways = Ways(tuning, slow=7, quick=2)
    ways.choose()
    runtime, paths = tuning.xp.cuda.runtime, [choices_path(tuning.xp)]
    for change in (
        lambda: monkeypatch.setattr(runtime, "getDeviceProperties", lambda number: {"name": b"another"}),
        lambda: monkeypatch.setattr(runtime, "driverGetVersion", lambda: 13000),
        lambda: monkeypatch.setattr(tuning.xp, "__version__", "99.1"),
        lambda: monkeypatch.setattr(autotune, "digest_of_sources", lambda: "other kernels"),
        lambda: monkeypatch.setattr(blas, "getVersion", lambda handle: 13),
    ):
        change()
        again(tuning)
        ways.made.clear()
        assert ways.choose() == "quick" and len(ways.made) == 2
        paths.append(choices_path(tuning.xp))
    assert len(set(paths)) == 6
    ways.made.clear()
    assert ways.choose("work B32") == "quick" and len(ways.made) == 2


def test_off_takes_the_table_and_reads_nothing(tuning: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(tuning, slow=7, quick=2)
    ways.choose()
    monkeypatch.setenv("BPPSA_AUTOTUNE", "off")
    again(tuning)
    ways.made.clear()
    assert ways.choose() == "slow" and not ways.made


def test_nothing_is_measured_inside_of_a_capture(tuning: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(tuning, slow=7, quick=2)
    with monkeypatch.context() as patch:
        patch.setattr(CudaDevice, "capturing", True)
        assert ways.choose() == "slow" and not ways.made and not tuning.choices.used
    assert ways.choose() == "quick"


def test_ways_that_the_device_refuses_are_left_out(tuning: CudaDevice) -> None:
    def refused():
        raise RefusedError("no clusters")

    ways = {"refused": lambda: refused, "other": lambda: lambda: None}
    assert tuning.choices.choose(KEY, ways, "refused") == "other"
    assert tuning.choices.choose("all", {"a": lambda: refused, "b": lambda: refused}, "b") == "b"


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"work B16": 3}', '{"work B16": "unknown"}'])
def test_a_damaged_file_is_measured_anew(content: str, tuning: CudaDevice) -> None:
    path = choices_path(tuning.xp)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert Ways(tuning, slow=7, quick=2).choose() == "quick"
    assert json.loads(path.read_text())[KEY] == "quick"


def test_only_rank_0_measures_and_the_others_adopt(tuning: CudaDevice) -> None:
    ways = Ways(tuning, slow=7, quick=2)
    tuning.choices.leads = False
    assert ways.choose() == "slow" and not ways.made and not tuning.choices.used
    tuning.choices.adopt({KEY: "quick"})
    assert ways.choose() == "quick" and not ways.made and tuning.choices.version == 1
    tuning.choices.adopt({KEY: "quick"})
    assert tuning.choices.version == 1, "nothing is bound anew"


class InTurn(Group):
    """A group of two ranks, of which rank 0 runs first."""

    def __init__(self, rank: int, device: Any, sent: list[Any]) -> None:
        self.rank, self.size, self.device, self._sent, self._passes = rank, 2, device, sent, 0

    def gather(self, value: Any) -> list[Any]:
        if self.rank == 0:
            self._sent.append(dict(value))
            return [value, None]
        return [self._sent.pop(0), value]


def test_ranks_hear_of_rank_0s_choices_at_passes_1_2_4_8() -> None:
    sent: list[Any] = []
    devices = [SimpleNamespace(tunes=True) for _ in range(2)]
    for device in devices:
        device.choices = Choices(device)
    ranks = [InTurn(rank, device, sent) for rank, device in enumerate(devices)]
    heard = []
    for number in range(1, 10):
        devices[0].choices.used[KEY] = f"way {number}"
        for rank in ranks:
            rank.share_choices()
        heard.append(devices[1].choices.used[KEY])
    assert [int(way.split()[1]) for way in heard] == [1, 2, 2, 4, 4, 4, 4, 8, 8] and not sent
    assert [device.choices.leads for device in devices] == [True, False]
