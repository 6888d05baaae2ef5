"""tools/gpu.py without a GPU: its tree, its parts and their limits, its results, by stubs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bppsa_cupy.tools import bench, gpu
from bppsa_cupy.tools.benchmarks import find_benchmarks
from bppsa_cupy.tools.gpu import Check, Outcome

FOUND = {"gpu": "a stub", "versions": {"python": "3"}, "benchmarks": ["one", "two"]}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return gpu.make_tree(gpu.ROOT, folder)


def part(name: str, text: str, seconds: float = 60.0, log: str = "log") -> Check:
    """A part that runs a Python text."""
    return Check(name, (sys.executable, "-c", text), seconds, log)


def test_the_tree_holds_the_whole_package(tree: Path) -> None:
    text = (
        "import bppsa_cupy.jacobians, bppsa_cupy.tools.bench as bench; "
        "print(bppsa_cupy.__file__, bench.__file__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tree,
        env=gpu.environment(tree),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    package = tree / "bppsa_cupy"
    assert result.stdout.split() == [str(package / "__init__.py"), str(package / "tools" / "bench.py")]


def test_the_tests_run_in_the_tree_on_its_package(tree: Path, tmp_path: Path) -> None:
    command = gpu.make_checks([], tree, None)[0].command
    chosen = [
        *command[: command.index("gpu")],
        *("not gpu", *command[command.index("gpu") + 1 : -1], "tests/test_losses.py"),
    ]
    outcome = gpu.run_check(Check("tests", tuple(chosen), 600.0, "tests.log"), tree, tmp_path)
    assert outcome.outcome == "passed", (tmp_path / "tests.log").read_text(encoding="utf-8")


def test_without_a_gpu_it_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "PROBE", "import sys; sys.exit('no GPU here')")
    assert gpu.main(["--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == "no check was made: no GPU here\n"
    assert not (tmp_path / "out").exists()


def test_the_probe_reads_the_last_line_or_the_exit_code(monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    monkeypatch.setattr(gpu, "PROBE", f"print('a word of a library'); print({json.dumps(FOUND)!r})")
    assert gpu.probe(tree) == FOUND
    monkeypatch.setattr(gpu, "PROBE", "import os; os._exit(5)")
    assert gpu.probe(tree) == "Python ended with exit code 5"


def test_the_parts_are_tests_sanitizers_and_every_benchmark(tmp_path: Path) -> None:
    names = [part.name for part in gpu.make_checks(["one", "two"], tmp_path, "/bin/sanitizer")]
    assert names == ["tests", "memcheck", "racecheck", "bench one", "bench two"]
    names = [part.name for part in gpu.make_checks(["one"], tmp_path, None)]
    assert names == ["tests", "bench one"]
    for part in gpu.make_checks(["one"], tmp_path, "/bin/sanitizer"):
        assert (part.command[0] == "/bin/sanitizer") == (part.log == "sanitizer.log")


@pytest.mark.parametrize("name", find_benchmarks())
def test_the_command_of_a_benchmark_is_one_it_takes(name: str, tmp_path: Path) -> None:
    command = gpu.make_checks([name], tmp_path, None)[-1].command
    arguments = bench.parser().parse_args(command[command.index(name) :])
    assert (arguments.name, arguments.device) == (name, "cuda")


@pytest.mark.parametrize(
    ("text", "outcome"),
    [("print('done')", "passed"), ("import sys; print('bad'); sys.exit(3)", "failed (3)")],
)
def test_a_part_leaves_its_log_and_its_exit_code(tmp_path: Path, text: str, outcome: str) -> None:
    found = gpu.run_check(part("some", text), tmp_path, tmp_path)
    assert (found.name, found.outcome) == ("some", outcome)
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert log.startswith("==== some\n") and log.endswith(f"==== some: {outcome}\n")


def test_a_part_over_its_time_is_killed_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Popen(subprocess.Popen):
        """A process whose time begins when it has named its child."""

        def wait(self, timeout: float | None = None) -> int:
            log = tmp_path / "log"
            while (
                timeout is not None
                and self.poll() is None
                and log.read_text(encoding="utf-8").count("\n") < 2
            ):
                time.sleep(0.05)
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    text = (
        "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(600)']); print(child.pid, flush=True); time.sleep(600)"
    )
    found = gpu.run_check(part("slow", text, 0.1), tmp_path, tmp_path)
    assert found.outcome == "over its time" and found.seconds < 600
    child = int((tmp_path / "log").read_text(encoding="utf-8").splitlines()[1])
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


def test_parts_after_the_deadline_are_not_run(tmp_path: Path) -> None:
    outcomes = gpu.run_checks([part("late", "print(1)")], tmp_path, tmp_path, time.monotonic() - 1)
    assert outcomes == [Outcome("late", "no time left", 0.0)]


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1)])
def test_results_are_one_folder(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    code: int,
    expected: int,
) -> None:
    def parts(benchmarks: list[str], tree: Path, sanitizer: str | None) -> list[Check]:
        report = json.dumps({"name": "one", "rows": []})
        write = f"open({str(tree / 'bench-one.json')!r}, 'w').write({report!r})"
        return [
            part("tests", "print(1)", log="tests.log"),
            part("bench one", write, log="benchmarks.log"),
            part("bench two", f"raise SystemExit({code})", log="benchmarks.log"),
        ]

    monkeypatch.setattr(gpu, "probe", lambda tree: FOUND)
    monkeypatch.setattr(gpu, "make_checks", parts)
    out = tmp_path / "results"
    out.mkdir()
    for name in (*gpu.RESULTS, "another"):
        (out / name).write_text("old", encoding="utf-8")
    assert gpu.main(["--out", str(out)]) == expected
    assert {path.name for path in out.iterdir()} == {*gpu.RESULTS, "another"} - {"sanitizer.log"}
    assert json.loads((out / "benchmarks.json").read_text(encoding="utf-8")) == [{"name": "one", "rows": []}]
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["gpu"] == "a stub" and summary["versions"] == {"python": "3"}
    outcomes = [row["outcome"] for row in summary["parts"]]
    assert outcomes == ["passed", "passed", "failed (1)" if code else "passed"]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0].strip() for line in printed[:3]] == ["tests", "bench one", "bench two"]
