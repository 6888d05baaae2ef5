"""make gpu without a GPU: its tree, its parts and their limits, its results; by stubs and on the host."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import kernels_on_device
import pytest

from bppsa_cupy.devices import get_device
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.tools import bench, gpu
from bppsa_cupy.tools.benchmarks import beside
from bppsa_cupy.tools.on_gpu import machine, nccl, parts, passes, products, run, times
from bppsa_cupy.tools.on_gpu.parts import Part, make_parts
from bppsa_cupy.tools.on_gpu.run import Outcome

pytestmark = pytest.mark.long

MACHINE = {"gpu": "a stub", "sources": "abc"}


def part(name: str, text: str, seconds: float = 60.0) -> Part:
    """A part that runs a Python text."""
    return Part(name, (sys.executable, "-c", text), seconds)


def outcomes_of(folder: Path) -> dict[str, str]:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return {one["name"]: one["outcome"] for one in summary["parts"]}


# ---- the tree ----


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return gpu.make_tree(gpu.ROOT, folder)


def test_the_tree_holds_the_whole_package(tree: Path) -> None:
    text = (
        "import bppsa_cupy.jacobians, bppsa_cupy.tools.bench as bench; "
        "print(bppsa_cupy.__file__, bench.__file__)"
    )
    printed = subprocess.check_output(
        [sys.executable, "-c", text], cwd=tree, env=gpu.environment(tree), encoding="utf-8"
    )
    package = tree / "bppsa_cupy"
    assert printed.split() == [str(package / "__init__.py"), str(package / "tools" / "bench.py")]
    (facts,) = metadata.distributions(path=[str(tree)])
    assert (facts.name, facts.version) == ("bppsa-cupy", metadata.version("bppsa-cupy"))


def test_the_tests_run_in_the_tree_on_its_package_without_those_that_lack_one(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypothesis among them, which the tests' own settings take."""
    lacking = tmp_path / "test_lacking.py"
    lacking.write_text("import no_such_package\n", encoding="utf-8")
    absent = "import sys; sys.modules['hypothesis'] = None\n"
    (tmp_path / "absent.py").write_text(absent, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), gpu.environment(tree)["PYTHONPATH"]]))
    command = next(one for one in make_parts() if one.name == "tests").command
    chosen = [word for word in command if word not in parts.workers()]
    place = chosen.index("gpu")
    chosen[place], chosen[-1:] = (
        "not gpu",
        ["tests/laws/test_geometry.py", str(lacking)],
    )
    outcome = run.run_part(
        Part("tests", (*chosen[:3], "-p", "absent", "-p", "no:hypothesispytest", *chosen[3:]), 600.0),
        tree,
        tmp_path,
    )
    printed = (tmp_path / "tests.txt").read_text(encoding="utf-8")
    assert outcome.outcome == "passed" and "needs hypothesis" in printed, printed


def test_without_a_gpu_it_says_so_in_a_line(tmp_path: Path) -> None:
    without = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(gpu.ROOT / "tools" / "gpu.py"), "--out", str(tmp_path / "out")]
    result = subprocess.run(command, cwd=gpu.ROOT, env=without, capture_output=True, encoding="utf-8")
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith("no check was made: device 'cuda'") and result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


# ---- the parts ----


def test_a_dry_run_prints_every_limit_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    sums = [line.split() for line in printed if line.startswith("call ")]
    lines = [line for line in printed if not line.startswith("call ")]
    assert [line.split()[0] for line in lines] == [one.name for one in make_parts()]
    for line, one in zip(lines, make_parts(), strict=True):
        assert f"{one.seconds:4.0f} s  {shlex.join(one.command)}" in line
        assert ("left out" in line) == (one.missing is not None)
    for call, told in zip((1, 2), sums, strict=True):
        seconds = sum(one.seconds for one in make_parts() if one.call == call)
        assert (
            told == ["call", str(call), f"{seconds:.0f}", "s", "of", "540"] and seconds <= parts.TOTAL == 540
        )
    assert run.main(["--dry-run", "--call", "1"]) == 0
    first = capsys.readouterr().out.splitlines()
    assert first == printed[: len(first)] and first[-1].startswith("call 1")


def test_what_teaches_most_comes_first_and_no_profiler_locks_the_clocks() -> None:
    assert [one.name for one in make_parts()][:6] == [
        "machine",
        "kernels",
        "walks",
        "beside",
        "products",
        "nccl",
    ]
    assert make_parts()[-1].name == "tests"
    command = next(one for one in make_parts() if one.name == "ncu").command
    assert command[command.index("--clock-control") + 1] == "none"


PARSERS = {
    "times": times.parser, "passes": passes.parser, "machine": machine.parser, "bench": bench.parser,
    "beside": beside.parser, "products": products.parser, "nccl": nccl.parser,
    "kernels_on_device.py": kernels_on_device.parser, "pytest": None,
}  # fmt: skip


@pytest.mark.parametrize("one", make_parts(), ids=lambda one: one.name)
def test_a_command_is_one_that_its_program_takes(one: Part) -> None:
    names = [re.split(r"[./](?!py$)", word)[-1] for word in one.command]
    place = max(k for k, name in enumerate(names) if name in PARSERS)
    parser = PARSERS[names[place]]
    if parser is None:
        assert (gpu.ROOT / one.command[-1]).exists()
        return
    arguments = parser().parse_args(one.command[place + 1 :])
    assert getattr(arguments, "device", None) == "cuda"
    assert getattr(arguments, "name", one.name) == one.name


def test_profiled_and_sanitized_kernels_are_those_that_are_meant() -> None:
    profiled = [name for name in times.over_time() if re.fullmatch(parts.PROFILED, name)]
    assert profiled == ["rnn_tanh_forward", "rnn_tanh_backward"]
    sanitized = {name for name in KERNELS if re.fullmatch(parts.SANITIZED, name)}
    assert set(times.over_time()) <= sanitized
    assert {name for name in KERNELS if "conv2d" in name or "pool2d" in name} <= sanitized


def test_a_tool_that_is_missing_leaves_its_parts_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(parts, "Path", lambda *names: tmp_path.joinpath("none", names[-1]))
    missing = {one.name for one in make_parts() if one.missing}
    assert missing == {"ncu", "racecheck"}
    one = next(one for one in make_parts() if one.missing)
    assert run.run_part(one, tmp_path, tmp_path).outcome.startswith("left out: ncu is neither on the path")


# ---- running ----


@pytest.mark.parametrize(
    ("text", "outcome"),
    [("print('{}')", "passed"), ("import sys; print('{}'); sys.exit(3)", "failed (3)")],
)
def test_a_part_leaves_its_lines_and_its_exit_code(tmp_path: Path, text: str, outcome: str) -> None:
    found = run.run_part(part("some", text), tmp_path, tmp_path)
    assert (found.name, found.outcome) == ("some", outcome)
    assert (tmp_path / "some.txt").read_text(encoding="utf-8") == "{}\n"


def test_a_part_over_its_time_gets_ctrl_c_and_ends_in_its_own_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "GRACE", 30.0)
    text = "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: print('so far', flush=True)"
    found = run.run_part(part("slow", text, 32.0), tmp_path, tmp_path)
    assert found.outcome == "over its time" and found.seconds < 30
    assert (tmp_path / "slow.txt").read_text(encoding="utf-8") == "so far\n"


def test_one_that_does_not_end_is_killed_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "GRACE", 1.0)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    text = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        f"child = subprocess.Popen([sys.executable, '-c', {deaf!r}]); "
        "print(child.pid, flush=True); time.sleep(600)"
    )
    found = run.run_part(part("deaf", text, 5.0), tmp_path, tmp_path)
    assert found.outcome == "over its time" and found.seconds < 60
    child = int((tmp_path / "deaf.txt").read_text(encoding="utf-8").splitlines()[0])
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


def test_parts_after_the_deadline_are_not_run_and_those_before_are_kept(tmp_path: Path) -> None:
    first, second = part("first", "print(1)"), part("second", "raise SystemExit(2)")
    run.run_parts([first, second], tmp_path, tmp_path, time.monotonic() + 600, (), MACHINE)
    assert outcomes_of(tmp_path) == {"first": "passed", "second": "failed (2)"}
    before = run.earlier(tmp_path, MACHINE)
    (tmp_path / "first.txt").write_text("kept", encoding="utf-8")
    late = run.run_parts([first, second, part("third", "1")], tmp_path, tmp_path, 0.0, before, MACHINE)
    assert [one.outcome for one in late] == ["passed", "failed (2)", "no time left"]
    assert (tmp_path / "first.txt").read_text(encoding="utf-8") == "kept"
    again = run.run_parts([part("first", "print(2)")], tmp_path, tmp_path, math.inf, before, MACHINE)
    assert again[0].outcome == "passed" and (tmp_path / "first.txt").read_text(encoding="utf-8") == "2\n"


def test_outcomes_of_other_sources_are_not_kept(tmp_path: Path) -> None:
    run.run_parts([part("first", "1")], tmp_path, tmp_path, math.inf, (), MACHINE)
    assert [one.name for one in run.earlier(tmp_path, MACHINE)] == ["first"]
    assert run.earlier(tmp_path, {**MACHINE, "sources": "others"}) == []
    assert run.earlier(tmp_path / "none", MACHINE) == []


def test_sources_are_known_again_until_one_changes(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "a.py").write_text("1", encoding="utf-8")
    before = run.digest(tmp_path)
    assert run.digest(tmp_path) == before
    (tmp_path / "tools" / "a.py").write_text("2", encoding="utf-8")
    assert run.digest(tmp_path) != before


def test_results_are_one_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = [part("one", "open(r'{out}/one.json', 'w').write('[]')"), part("two", "raise SystemExit(1)")]
    monkeypatch.setattr(run, "make_parts", lambda: made)
    monkeypatch.setattr(run, "get_device", lambda name: get_device("host"))
    monkeypatch.setattr(run, "gpu_name", lambda device: "a stub")
    assert run.main(["--tree", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"summary.json", "one.json", "one.txt", "one.log", "two.txt", "two.log"}
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:2]] == ["one", "two"]
    assert run.main(["--tree", str(tmp_path), "--out", str(tmp_path / "out"), "--only", "one"]) == 0
    assert outcomes_of(tmp_path / "out").keys() == {"one"} | {"two"}


def test_a_module_that_fails_to_load_keeps_no_other_from_its_tests(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("1 / 0", encoding="utf-8")
    text = "import pytest\n\n@pytest.mark.gpu\ndef test_b():\n    pass\n"
    (tmp_path / "test_b.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", *parts.PYTEST, "."]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8", check=False)
    assert "1 passed" in ended.stdout and "ZeroDivisionError" in ended.stdout


def test_only_takes_names_of_parts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run.main(["--only", "nothing", "--dry-run"])
    assert "nothing is no part: there are machine, kernels," in capsys.readouterr().err
    assert run.main(["--only", "walks,machine", "--dry-run"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["walks", "machine", "call"]


def test_an_outcome_that_was_cut_off_is_not_finished() -> None:
    found = {
        text: Outcome("a", text, 1.0, "b").finished for text in ("passed", "failed (1)", "over its time")
    }
    assert list(found.values()) == [True, True, False]


def test_what_nvidia_smi_says_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 570.1, 1980 MHz'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = machine.ask_nvidia_smi()
    assert found == {"name": "NVIDIA H200", "driver_version": "570.1", "clocks.sm": "1980 MHz"}
