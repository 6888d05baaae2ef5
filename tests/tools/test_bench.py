"""bppsa-bench: every benchmark runs small and gives the rows it promises."""

from __future__ import annotations

import json
import re
import socket
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from bench_cases import FIELDS, run

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import get_device
from bppsa_cupy.tools import bench
from bppsa_cupy.tools.benchmarks import find_benchmarks
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError
from bppsa_cupy.tools.benchmarks.jacobians import BoundFill, Fill, check_columns
from bppsa_cupy.tools.benchmarks.tables import digits, figure, table
from bppsa_cupy.tools.machine import describe_machine, versions

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_jacobians(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run("jacobians", tmp_path, "--columns", "3")["rows"]
    printed = capsys.readouterr().out
    found = {(row["case"].split()[1], row["quantity"]): row for row in rows}
    quantities = {"guaranteed sparsity", "nnz", "values", "fill", "kernel", "peak memory"}
    assert found.keys() == {(name, q) for name in ("Conv2d", "ReLU", "MaxPool2d") for q in quantities}
    for name in ("Conv2d", "ReLU", "MaxPool2d"):
        row = found[name, "guaranteed sparsity"]
        assert row["ours"] == pytest.approx(row["paper"], abs=1e-5)
        assert found[name, "fill"]["against"] == "PyTorch autograd, 1 thread"
        assert f"1 - {1 - row['ours']:.3g}" in printed
    assert found["Conv2d", "guaranteed sparsity"]["theirs"] == 1 - 9 / 1024
    assert found["Conv2d", "values"]["ours"] == 1696512 * 4 / 2**20
    assert found["MaxPool2d", "nnz"]["ours"] == 65536


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_train(tmp_path: Path) -> None:
    rows = run("train", tmp_path)["rows"]
    found = {(row["case"], row["quantity"]) for row in rows}
    quantities = ("forward", "backward", "optimizer", "overall", "peak memory")
    assert {(f"lenet5 B=2, 1 thread, {m}", q) for q in quantities for m in ("bp", "hybrid", "auto")} <= found
    *measured, auto = rows
    assert all(row["against"] == "PyTorch" for row in measured[:15])
    assert auto["case"].endswith("auto") and auto["against"] in ("bp, the best", "hybrid, the best")


BLOCKS = """
import bppsa_cupy as bp

def net(input_shape=(3, 6, 6), classes=5, **options):
    body = [bp.Conv2d(3, 4, 3, 2, 1), bp.BatchNorm2d(4), bp.ReLU(), bp.Conv2d(4, 4, 3, padding=1)]
    layers = [bp.Residual(body, [bp.PadShortcut(4, 2)]), bp.Dropout(), bp.Flatten(), bp.Linear(36, classes)]
    return bp.Sequential(layers, input_shape=input_shape, **options)
"""


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_train_with_blocks_batch_normalisation_and_dropout(tmp_path: Path) -> None:
    (tmp_path / "blocks.py").write_text(BLOCKS, encoding="utf-8")
    model = f"{tmp_path / 'blocks.py'}:net"
    rows = run("train", tmp_path, "--model", model, "--methods", "bp", "--dtype", "float64")["rows"]
    assert [row["quantity"] for row in rows] == ["forward", "backward", "optimizer", "overall", "peak memory"]
    assert all(row["theirs"] > 0 for row in rows)


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_a_step_that_differs_more_than_the_tolerance_is_not_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--device", "host", "--quick", "--threads", "1", "--methods", "bp"]
    assert bench.main([*command, "--tolerance", "1e-12"]) == 1
    assert "is allowed: the times are not reported" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_train_pruned_on_given_images(tmp_path: Path) -> None:
    images = np.random.default_rng(1).standard_normal((4, 1, 20, 20)).astype(np.float32)
    np.savez(
        tmp_path / "images.npz", x_train=images, y_train=np.arange(4), x_test=images, y_test=np.arange(4)
    )
    rows = run(
        "train", tmp_path, "--data", str(tmp_path / "images.npz"), "--prune", "0.9", "--dtype", "float64",
        "--levels", "1", "--methods", "bp", "hybrid", "--threads", "1",
    )["rows"]  # fmt: skip
    name = "lenet5 pruned by 90 % B=2, float64, 1 thread"
    own = f"{name}, bp by all weights"
    cases = [f"{name}, bp"] * 6 + [f"{name}, hybrid"] * 6 + [own] * 6 + [f"{name}, bp"]
    assert [row["case"] for row in rows] == cases
    assert "hybrid of 1 levels" in rows[7]["note"] and rows[-1]["against"] == "bp by all weights"
    rate, by_all = rows[5], rows[17]
    assert rate["quantity"] == by_all["quantity"] == "multiply-adds" and rate["unit"] == "10⁹/s"
    step = {row["case"]: row for row in rows if row["quantity"] == "overall" and row["against"] == "PyTorch"}
    # 5×5 convolutions of 6 and 16 channels at 16×16 and 4×4 outputs, and linear layers: of the first no VJP
    convolutions, linear = 2 * 256 * 6 * 25 + 3 * 16 * 16 * 6 * 25, 3 * (16 * 4 * 120 + 120 * 84 + 84 * 4)
    whole = 2 * (convolutions + linear) / 1e9
    assert by_all["ours"] * step[own]["ours"] == pytest.approx(whole)
    assert rate["theirs"] * step[f"{name}, bp"]["theirs"] == pytest.approx(whole)
    assert rate["ours"] * step[f"{name}, bp"]["ours"] == pytest.approx(0.1 * whole, rel=0.01)


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_train_of_several_shares_draws_them(tmp_path: Path) -> None:
    shares = ["--prune", "0", "0.9", "--plot", str(tmp_path / "shares.png")]
    rows = run("train", tmp_path, "--methods", "bp", "--threads", "1", *shares)["rows"]
    steps = [row for row in rows if row["quantity"] == "overall"]
    assert [row["case"].split(" B=")[0] for row in steps] == [
        f"lenet5 pruned by {share} %" for share in ("0", "90", "90", "90")
    ]
    assert (tmp_path / "shares.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_sparseprop_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--device", "host", "--quick", "--threads", "1", "--methods", "bp"]
    pytest.importorskip("torch")
    if find_spec("sparseprop") is not None:
        pytest.skip("sparseprop is there")
    assert bench.main([*command, "--prune", "0.9", "--against", "sparseprop"]) == 1
    assert "pip install sparseprop==0.1.14" in capsys.readouterr().err


def test_a_method_over_the_memory_limit_is_told_with_its_bytes(tmp_path: Path) -> None:
    limits = ("--levels", "1", "--memory-limit", "8M")
    row = run("train", tmp_path, "--against", "none", "--methods", "bp", "hybrid", *limits)["rows"][-1]
    assert (row["case"], row["quantity"]) == ("lenet5 B=2, hybrid", "memory needed")
    assert row["ours"] > row["theirs"] == 8e6 / 2**20 and f"{round(row['ours'] * 2**20)} bytes" in row["note"]


def test_without_a_rival(tmp_path: Path) -> None:
    rows = run("train", tmp_path, "--against", "none", "--methods", "bp")["rows"]
    assert {row["theirs"] for row in rows} == {row["ratio"] for row in rows} == {None}


def test_columns_that_differ_are_refused() -> None:
    pattern, values = Pattern.diagonal(3), np.array([1.0, 2.0, 3.0])
    columns = {"columns": np.array([0, 2]), "row": np.array([0, 2]), "position": np.array([0, 1])}
    check_columns(pattern, values, [{**columns, "value": np.array([1.0, 3.0])}])
    with pytest.raises(BenchmarkError, match="differs from autograd's by 1"):
        check_columns(pattern, values, [{**columns, "value": np.array([1.0, 4.0])}])
    with pytest.raises(BenchmarkError, match="not finite"):
        check_columns(pattern, np.array([1.0, np.nan, 3.0]), [])


def test_bound_launches_fill_as_the_operator_does() -> None:
    from bppsa_cupy.layers import Conv2d, MaxPool2d, ReLU

    layers = [Conv2d(3, 2, 3), ReLU(), MaxPool2d(2)]
    for count in (1, 2, 3):
        filled = []
        for side in (Fill, BoundFill):
            workload = side(layers[:count], "host")
            workload.values[...] = np.nan
            workload.run(lambda quantity: None)
            filled.append(workload.result())
        np.testing.assert_array_equal(*filled)


def test_the_machine_is_told_without_names_of_hosts_and_paths() -> None:
    device = get_device("host")
    text = json.dumps([describe_machine(device, 2), versions(device)])
    assert socket.gethostname() not in text and "/" not in text
    assert versions(device)["numpy"] == np.__version__


def test_what_is_wrong_with_the_command_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["train", "--model", "nothing", "--quick", "--device", "host"]) == 1
    assert capsys.readouterr().err.startswith("error: model 'nothing' is none of ")
    with pytest.raises(SystemExit) as exit:
        bench.main(["no-such-benchmark"])
    assert exit.value.code == 2


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "s", "1.5 s"),
        (2e-3, "s", "2 ms"),
        (3e-7, "s", "0.3 µs"),
        (7, "entries", "7"),
        (4294967296, "entries", "4.29 G"),
        (0.9999847, "fraction", "1 - 1.53e-05"),
        (0.123456, "fraction", "0.1235"),
        (8.0087464, "", "8.009"),
        (1696512, "a sample", "1,697,000 a sample"),
    ],
)
def test_figures(value: float, unit: str, text: str) -> None:
    assert figure(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8215, "0.822"),
        (18, "18"),
        (999.4, "999"),
        (999.6, "1,000"),
        (3061.0, "3,060"),
        (1.2e6, "1,200,000"),
    ],
)
def test_ratios_have_three_digits(value: float, text: str) -> None:
    assert digits(value, 3) == text


def test_no_number_of_a_printed_table_has_more_than_four_digits() -> None:
    seen = 0
    for file in RESULTS.glob("*.json"):
        rows = json.loads(file.read_text(encoding="utf-8")).get("rows", [])
        rows = [row for row in rows if "spread" in row]
        for line in table(rows).splitlines() if rows else ():
            cells = re.split(r"  +", line.strip())[1:6] if line.startswith("  ") else ()
            for number in re.findall(r"(?<![A-Za-z\d.])[\d,]+(?:\.\d+)?(?=$|[ e])", " ".join(cells)):
                assert len(number.replace(",", "").replace(".", "").strip("0")) <= 4, (line, number)
                seen += 1
    assert seen > 1000


@pytest.mark.parametrize("name", [n for n, m in find_benchmarks().items() if hasattr(m, "AGAINST")])
def test_quoted_results_are_of_the_benchmark_they_name(name: str) -> None:
    path = "h200/steps_paper" if name == "steps" else name
    report = json.loads((RESULTS / f"{path}.json").read_text(encoding="utf-8"))
    assert report["name"] == name
    assert report.keys() == {"name", "command", "device", "machine", "versions", "rows"}
    assert report["command"].startswith(f"bppsa-bench {report['name']}") and "/" not in report["command"]
    assert report["rows"] and all(FIELDS <= row.keys() for row in report["rows"])
