"""make gpu without a GPU: its tree, its limits and files, and its programs on the host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import cupy_stub
import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from nvrtc import nvrtc

from bppsa_cupy.devices import cubins
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant
from bppsa_cupy.tools import bench, gpu
from bppsa_cupy.tools.benchmarks import steps
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError
from bppsa_cupy.tools.gpu import Part
from bppsa_cupy.tools.on_gpu import step_profile, walk_steps


def python(name: str, text: str, seconds: float = 60.0) -> Part:
    """A part that runs a Python text."""
    return Part(name, seconds, (sys.executable, "-c", text))


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, Any]]]:
    """The JSON lines that were printed so far."""
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[:1] == "{"]


# ---- the tree ----


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return gpu.make_tree(gpu.ROOT, folder)


@pytest.mark.long
def test_the_tree_holds_the_package(tree: Path) -> None:
    text = (
        "import bppsa_cupy.jacobians, bppsa_cupy.tools.bench as bench; "
        "print(bppsa_cupy.__file__, bench.__file__)"
    )
    printed = subprocess.check_output(
        [sys.executable, "-c", text], cwd=tree, env=gpu.environment(tree, None), encoding="utf-8"
    )
    package = tree / "bppsa_cupy"
    assert printed.split() == [str(package / "__init__.py"), str(package / "tools" / "bench.py")]
    (facts,) = metadata.distributions(path=[str(tree)])
    assert (facts.name, facts.version) == ("bppsa-cupy", metadata.version("bppsa-cupy"))


@pytest.mark.long
def test_missing_packages_and_broken_modules_stop_no_other_tests(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("1 / 0", encoding="utf-8")
    (tmp_path / "test_b.py").write_text("import no_such_package", encoding="utf-8")
    text = "import pytest\n\n@pytest.mark.gpu\ndef test_c():\n    pass\n"
    (tmp_path / "test_c.py").write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    command = [sys.executable, "-m", "pytest", *gpu.PYTEST, "."]
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8", check=False)
    assert "1 passed" in ended.stdout and "ZeroDivisionError" in ended.stdout, ended.stdout


# ---- parts and their limits ----


def test_parts_fit_the_time_and_the_files() -> None:
    parts = gpu.make_parts()
    assert sum(part.seconds for part in parts[:-1]) <= gpu.TOTAL <= 560
    written = {word for part in parts for word in part.command if word.startswith("{out}")}
    assert len(written | {"summary.json", "results.jsonl", "log.txt"}) <= 8
    assert len({part.name for part in parts}) == len(parts)


@pytest.mark.parametrize("part", gpu.make_parts(), ids=lambda part: part.name)
def test_each_benchmark_accepts_its_options(part: Part) -> None:
    for command in (part.command, part.rehearsal or ()):
        if f"{bench.__name__}" in command:
            words = command[command.index(bench.__name__) + 1 :]
            assert bench.parser().parse_args(words).name == words[0]


def test_profiled_kernels_exist() -> None:
    assert len([name for name in KERNELS if re.fullmatch(gpu.PROFILED, name)]) == 6


def test_lines_and_exit_codes_are_kept(tmp_path: Path) -> None:
    parts = [
        python("one", "import sys; print('{\"a\": 1}'); print('words'); print('{not'); sys.exit(3)"),
        Part("two", 60.0, ("no-such-program",)),
        python("three", "open(r'{out}/three.json', 'w').write('[]')"),
    ]
    outcomes = gpu.run_parts(parts, tmp_path, tmp_path / "out")
    assert [one.outcome.partition(":")[0] for one in outcomes] == ["failed (3)", "left out", "passed"]
    out = tmp_path / "out"
    names = {path.name for path in out.iterdir()}
    assert names == {"summary.json", "results.jsonl", "log.txt", "three.json"}
    assert json.loads((out / "results.jsonl").read_text(encoding="utf-8")) == {"part": "one", "a": 1}
    assert {"words", "{not"} < set((out / "log.txt").read_text(encoding="utf-8").splitlines())
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in summary] == ["one", "two", "three"]


def test_no_part_starts_after_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "TOTAL", gpu.GRACE)
    (outcome,) = gpu.run_parts([python("late", "print(1)")], tmp_path, tmp_path / "out")
    assert outcome.outcome == "no time left"


def test_a_part_over_its_time_is_interrupted_and_keeps_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "GRACE", 30.0)
    text = "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: print('{\"so\": 1}', flush=True)"
    (outcome,) = gpu.run_parts([python("slow", text, 33.0)], tmp_path, tmp_path / "out")
    assert outcome.outcome == "over its time" and outcome.seconds < 30
    assert "so" in json.loads((tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8"))


def test_a_part_that_does_not_end_is_killed_with_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "GRACE", 1.0)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    text = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        f"child = subprocess.Popen([sys.executable, '-c', {deaf!r}]); "
        "print(child.pid, flush=True); time.sleep(600)"
    )
    (outcome,) = gpu.run_parts([python("deaf", text, 5.0)], tmp_path, tmp_path / "out")
    assert outcome.outcome == "over its time" and outcome.seconds < 60
    child = int((tmp_path / "out" / "log.txt").read_text(encoding="utf-8").splitlines()[-1])
    deadline = time.monotonic() + 30
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_machine_code_made_without_a_gpu_is_used_by_cupy(
    stub: CudaDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if nvrtc() is None:
        pytest.skip("NVRTC is missing: install nvidia-cuda-nvrtc-cu12 (the extra `test` has it)")
    kernel, variant, cupy = KERNELS["step_count"], Variant(), stub.xp
    version = sys.modules["nvrtc"].version()  # type: ignore[attr-defined]
    monkeypatch.setattr(cubins, "kept_in", lambda: tmp_path)
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", lambda: version)
    monkeypatch.setattr(gpu, "CUPY", cupy.__version__)
    monkeypatch.setattr(cupy_stub.Nvrtc, "compiled", [])
    (tmp_path / "cuda").mkdir()
    gpu.compile_without_gpu(kernel, variant, tmp_path / "cuda")
    (file,) = (tmp_path / "cuda").iterdir()
    assert cubins.machine_code(cupy, kernel, variant) == file
    assert not cupy_stub.Nvrtc.compiled


# ---- walks, training steps and their profile ----


@pytest.mark.long
def test_a_walk_that_fails_has_its_error(
    told: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--device", "host", "--cells", "rnn_tanh", "--hidden", "3", "--steps", "6"]
    assert walk_steps.main(words) == 0
    assert len(found := told()) == 2 * 3 and all(line["ns_per_step"] > 0 for line in found)
    monkeypatch.setattr(walk_steps, "_time_launch", lambda *_: 1 / 0)
    assert walk_steps.main(words) == 1
    assert all("ZeroDivisionError" in line["error"] for line in told())


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_training_steps_agree_with_pytorch(tmp_path: Path) -> None:
    file = tmp_path / "steps.json"
    command = ["steps", "--quick", "--device", "host", "--threads", "1", "--json", str(file)]
    assert bench.main(command) == 0
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    compared = [row for row in rows if row["quantity"].startswith("step, ")]
    assert len(compared) == 6 and all(row["ratio"] > 0 for row in rows)
    for row in compared:
        assert "differs by" in row["note"] and "more than" not in row["note"], row


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_a_pruned_model_keeps_its_zeros_in_pytorch() -> None:
    case = steps.image_case("lenet5", 0.5, 2)
    ours, theirs = (steps._built(make, case, "host") for make in (steps.PlainStep, steps.TorchStep))
    assert steps.difference(ours.result(), theirs.result()) < steps.TOLERANCE
    for name, mask in ours.network.masks.items():
        weight = dict(theirs.model.named_parameters())[name].detach().numpy()
        assert not weight[~mask.astype(bool)].any()


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_a_side_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(case: steps.Case, device: str) -> Any:
        raise DeviceError("no capture")

    monkeypatch.setattr(steps, "CapturedStep", refuse)
    words = ["steps", "--quick", "--device", "host", "--cases", "paper"]
    arguments = bench.parser().parse_args(words)
    parts = steps.run(arguments)
    assert {row.quantity for row in next(parts)} >= {"step, plain", "overall"}
    with pytest.raises(BenchmarkError, match="no capture"):
        next(parts)


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_our_steps_run_on_the_stand_in(stub: CudaDevice) -> None:
    words = [
        "steps",
        "--quick",
        "--device",
        "cuda",
        "--against",
        "none",
        "--cases",
        "paper",
        "--repeats",
        "1",
    ]
    (rows,) = steps.run(bench.parser().parse_args(words))
    by_quantity = {row.quantity: row for row in rows}
    assert "one CUDA graph" in (by_quantity["step, captured"].note or "")
    assert {"step, plain", "memory, captured", "forward", "backward", "optimizer"} < by_quantity.keys()


def test_differences_are_relative_to_norms() -> None:
    wanted = {"loss": np.array(2.0), "w": np.array([3.0, 4.0]), "b": np.zeros(2)}
    assert steps.difference(wanted, wanted) == 0
    assert steps.difference({**wanted, "w": wanted["w"] + [0, 0.5]}, wanted) == pytest.approx(0.1)
    assert steps.difference({**wanted, "b": np.array([0.05, 0])}, wanted) == pytest.approx(1.0)


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_step_is_profiled(told: Callable[[], list[dict[str, Any]]]) -> None:
    assert step_profile.main(["--device", "host", "--like", "RNN T10", "--steps", "2"]) == 0
    found = told()
    assert [line["side"] for line in found] == ["plain"] * 2 + ["captured"] * 2
    assert found[0]["calls"] > 10 and found[0]["functions"][0]["us"] > 0
