"""The committed machine-code tables: they are of today's kernels, and no kernel has grown."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import TILE_ROWS
from bppsa_cupy.tools.instruments import bench
from bppsa_cupy.tools.instruments.machine_code import disassembly, nvrtc
from bppsa_cupy.tools.instruments.machine_code.cases import TARGETS
from bppsa_cupy.tools.instruments.machine_code.cluster_walks import read_kernels
from bppsa_cupy.tools.instruments.machine_code.goals import CYCLES, SECONDS, goals, quickest
from bppsa_cupy.tools.instruments.machine_code.loops import steps_of
from bppsa_cupy.tools.instruments.machine_code.measure import Built, measure
from bppsa_cupy.tools.instruments.machine_code.page import page, summary
from bppsa_cupy.tools.instruments.machine_code.rivals import theirs

pytestmark = [pytest.mark.long, pytest.mark.instrument]

DOCS = Path(__file__).parents[2] / "docs"
AGAIN = "run `make machine-code`, and look at what changed"

#: How much more of anything a step may take before the tables are made anew.
GROWTH = 1.03
#: Kernels that are measured whether their text changed or not.
MEASURED = ("relu_forward", "newton_scan")


@cache
def committed() -> dict[str, Any]:
    return json.loads((DOCS / "results" / "machine-code.json").read_text(encoding="utf-8"))


@pytest.fixture
def tools() -> None:
    """NVRTC of the version of the tables, and nvdisasm."""
    if nvrtc.nvrtc() is None or disassembly.nvdisasm() is None:
        pytest.skip("NVRTC or nvdisasm is missing: the extra `test` has both")
    found, known = ".".join(map(str, nvrtc.version())), committed()["versions"]["nvrtc"]
    if found != known:
        pytest.skip(f"the tables are of NVRTC {known}, this is {found}, whose code may differ")


def test_the_page_is_that_of_the_committed_numbers() -> None:
    for file, made in (("results/machine-code.md", page), ("performance-gpu-predictions.md", summary)):
        assert (DOCS / file).read_text(encoding="utf-8") == made(committed()), AGAIN


def test_the_tables_have_every_kernel_and_target() -> None:
    found = {(row["kernel"], row["target"]) for row in committed()["rows"]}
    assert found == {(name, target) for name in KERNELS for target in TARGETS}, AGAIN


@pytest.mark.parametrize("name", KERNELS)
def test_no_hot_loop_has_grown(name: str, tools: None) -> None:
    known = next((r for r in committed()["rows"] if (r["kernel"], r["target"]) == (name, "sm_90")), None)
    assert known is not None, f"{name} is not in the tables: {AGAIN}"
    if Built(KERNELS[name], "sm_90").text == known["text"] and name not in MEASURED:
        return  # the code is the same
    now = measure(KERNELS[name], "sm_90")
    grown = {
        quantity: (known[quantity], getattr(now, quantity))
        for quantity in ("registers", "spill_bytes", "instructions")
        if getattr(now, quantity) > GROWTH * known[quantity]
    }
    assert not grown, f"{name} takes more than it did, {grown}: {AGAIN}"
    if name in MEASURED:
        assert now.instructions == known["instructions"] and dict(now.cycles) == known["cycles"], AGAIN


def test_the_command_gives_a_row_a_kernel_and_target(
    tools: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, text = tmp_path / "rows.json", tmp_path / "page.md"
    words = ["machine-code", "--kernel", "relu_forward", "--arch", "sm_90", "--listing"]
    assert bench.main([*words, "--json", str(file), "--page", str(text)]) == 0
    report = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["kernel"], row["target"]) for row in report["rows"]] == [("relu_forward", "sm_90")]
    assert report["command"] == " ".join([bench.PROGRAM, *words, "--page", str(text)])
    assert text.read_text(encoding="utf-8") == page(report)
    printed = capsys.readouterr().out
    assert "LDG.E" in printed and "loads from L2" in printed
    assert (
        printed.splitlines()[-2].startswith("relu_forward, sm_90")
        and max(map(len, printed.splitlines()[-3:])) <= 100
    )


def test_walks_of_other_widths_are_other_loops(tools: None) -> None:
    narrow, wide = (measure(KERNELS["chunk_scan"], "sm_90", hidden=width) for width in (20, 40))
    assert wide.reals == pytest.approx(narrow.reals + 20, abs=1) and wide.loads == narrow.loads + 20


@pytest.mark.parametrize("name", ["rnn_tanh_forward", "gru_backward"])
def test_a_walk_is_read_where_most_steps_go(name: str, tools: None) -> None:
    """Not in the loop for the steps that are left over, which asks at each whether there is another."""
    loop = Built(KERNELS[name], "sm_90").loop.instructions
    assert steps_of(loop) >= 4 and sum(one.name == "BRA" for one in loop) == 1


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
@pytest.mark.parametrize("name", ["gru_forward", "lstm_backward"])
def test_a_walk_by_a_block_spills_nothing_in_a_step(name: str, target: str, tools: None) -> None:
    """One barrier, and of a thread's 48 or 64 packs of weights each multiplied once."""
    loop = Counter(one.name for one in Built(KERNELS[name], target, hidden=128).loop.instructions)
    packs = 16 * FORMS[name.partition("_")[0]].gates
    assert loop["BAR"] == 1 and 4 * packs <= loop["FFMA"] < 4.7 * packs
    assert not loop["LDL"] and not loop["STL"]


@pytest.mark.parametrize("verb", ["forward", "backward"])
def test_a_walk_by_clusters_meets_once_a_step(verb: str, tools: None) -> None:
    """A barrier of the block before packs are handed on, one of the cluster behind, and no spill."""
    kernel, hidden = next(one for one in read_kernels() if one[0].name == f"lstm_{verb}" and one[1] == 256)
    loop = Counter(one.name for one in Built(kernel, "sm_90", hidden=hidden).loop.instructions)
    assert loop["BAR"] == loop["UCGABAR_ARV"] == loop["UCGABAR_WAIT"] == 1
    assert not loop["LDL"] and not loop["STL"] and loop["FFMA"] >= 128


def test_a_reduction_in_blocks_has_a_step_a_unit(tools: None) -> None:
    found, form = measure(KERNELS["gru_reduce"], "sm_90", hidden=64), FORMS["gru"]
    assert found.loads == form.gates * TILE_ROWS
    assert TILE_ROWS * form.tile_columns <= found.reals < 3 * TILE_ROWS * form.tile_columns


def test_an_unknown_kernel_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench.main(["machine-code", "--kernel", "no_kernel"])
    assert "no_kernel: there are " in capsys.readouterr().err


def test_without_nvdisasm_it_says_what_to_install(
    tools: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(disassembly, "nvdisasm", lambda: None)
    disassembly.nvdisasm_version.cache_clear()
    assert bench.main(["machine-code", "--kernel", "relu_forward", "--arch", "sm_90"]) == 1
    assert capsys.readouterr().err.startswith("error: nvdisasm is missing: pip install nvidia-cuda-nvdisasm")


def test_a_goal_is_met_by_the_quickest_way_with_what_all_ways_have() -> None:
    seconds = (("backward, serial", 5.0), ("backward, 3 chunks", 1.0), ("backward, 3 chunks", 2.0))
    seconds += (("backward", 0.5), ("forward, serial", 9.0))
    parts = [{"cell": "gru", "way": way, "seconds": s} for way, s in seconds]
    assert quickest(parts, "gru", "backward") == 3.5 and quickest(parts, "gru", "forward") == 9.0
    row = {"kernel": "chunk_scan", "target": "sm_90", "cycles": {"L2": 301.2}}
    report = {"rows": [row, {**row, "target": "sm_80"}], "predictions": [], "predictions_gru": parts}
    first, *others = goals(report, "sm_90")
    assert first == ("chunk_scan, cycles a step", "≤ 300", "301", "no")
    assert [line[3] for line in others] == ["no", "no"] and len(others) == 2, "no passes of other lengths"


@pytest.mark.parametrize(
    "cell, hidden, forward, back",
    [("rnn_tanh", 64, 0.44, 1.1), ("lstm", 128, 2.6, 4.1), ("rnn_tanh", 512, 10, 19), ("gru", 160, 4.0, 19)],
)
def test_the_rivals_times_are_those_published(cell: str, hidden: int, forward: float, back: float) -> None:
    """By the width's algorithm, which differs forward and back, on an H100 and the GPU that was timed."""
    first, second, _ = theirs(cell, 1000, hidden)
    for found, wanted in ((first, forward), (second, back)):
        assert found.most == pytest.approx(wanted * 1e-3) and found.least <= found.most / 1.4 + 1e-12


def test_every_goal_is_told() -> None:
    assert len(list(goals(committed(), "sm_90"))) == len(CYCLES) + len(SECONDS)
