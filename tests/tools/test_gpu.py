"""make gpu without a GPU: its tree, its limits and files, and its programs on the host."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures

from bppsa_cupy.devices import get_device
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.tools import bench, gpu
from bppsa_cupy.tools.gpu import Part
from bppsa_cupy.tools.on_gpu import step_profile, walk_steps


def python(name: str, text: str, seconds: float = 60.0) -> Part:
    """A part that runs a Python text."""
    return Part(name, seconds, (sys.executable, "-c", text))


@pytest.fixture
def printed_lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, Any]]]:
    """The JSON lines that were printed so far."""
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[:1] == "{"]


def test_parts_fit_the_time_and_the_files_and_their_options_are_known() -> None:
    parts = gpu.make_parts()
    assert sum(part.seconds for part in parts[:-1]) <= gpu.TOTAL <= 560
    written = {word for part in parts for word in part.command if word.startswith("{out}")}
    assert len(written | {"summary.json", "results.jsonl", "log.txt"}) <= 8
    for command in (words for part in parts for words in (part.command, part.rehearsal or ())):
        if bench.__name__ in command:
            words = command[command.index(bench.__name__) + 1 :]
            assert bench.parser().parse_args(words).name == words[0]
    assert len([name for name in KERNELS if re.fullmatch(gpu.PROFILED, name)]) == 6


def test_lines_exit_codes_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "GRACE", 30.0)
    slow = "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: print('{\"so\": 1}', flush=True)"
    parts = [
        python("one", "import sys; print('{\"a\": 1}'); print('words'); print('{not'); sys.exit(3)"),
        Part("two", 60.0, ("no-such-program",)),
        python("three", "open(r'{out}/three.json', 'w').write('[]')"),
        python("four", slow, 33.0),
        python("five", "", 30.0),
    ]
    outcomes = gpu.run_parts(parts, tmp_path, tmp_path / "out")
    assert [entry.outcome.partition(":")[0] for entry in outcomes] == [
        "failed (3)", "left out", "passed", "over its time", "no time left",
    ]  # fmt: skip
    out = tmp_path / "out"
    lines = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert list(map(json.loads, lines)) == [{"part": "one", "a": 1}, {"part": "four", "so": 1}]
    assert {"words", "{not"} < set((out / "log.txt").read_text(encoding="utf-8").splitlines())
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in summary] == ["one", "two", "three", "four", "five"]


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_walks_and_steps_are_timed(printed_lines: Callable[[], list[dict[str, Any]]]) -> None:
    assert walk_steps.main("--device host --cells rnn_tanh --hidden 3 --steps 6".split()) == 0
    lines = printed_lines()
    assert all(line["ns_per_step"] > 0 for line in lines)
    assert Counter(line["direction"] for line in lines) == {"forward": 3, "backward": 3}
    late = list(walk_steps.time_walks(get_device("host"), ("gru",), (1,), (3,), steps=6, seconds=-1))
    assert [line["left_out"] for line in late] == ["-1 s are over"]
    assert step_profile.main(["--device", "host", "--like", "RNN T10", "--steps", "2"]) == 0
    lines = printed_lines()
    assert [line["side"] for line in lines] == ["plain"] * 2 + ["captured"] * 2
    assert lines[0]["calls"] > 10 and lines[0]["functions"][0]["us"] > 0
