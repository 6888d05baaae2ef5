"""bppsa-plan: exit codes, one-line errors, tables, JSON, pictures."""

import json
import subprocess
import sys

import h5py
import numpy as np
import pytest
import scipy.sparse
from plan_cases import edited, general_chains, plan_of, random_chain, small_network

import bppsa_cupy as bp
from bppsa_cupy.plan import Plan, build_plan
from bppsa_cupy.plan.algorithms import blelloch, dead_products, hybrid
from bppsa_cupy.plan.schedule import up_sweep_levels
from bppsa_cupy.system.hdf5 import create
from bppsa_cupy.tools.plan import main
from bppsa_cupy.tools.plans.report import report
from bppsa_cupy.tools.plans.schedule_picture import in_place_rows

MODEL = """
import bppsa_cupy as bp

def tiny(input_shape=(1, 8, 8), channels=2, **options):
    layers = [bp.Conv2d(1, channels, 3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(channels * 9, 4)]
    return bp.Sequential(layers, input_shape=input_shape, **options)

def wider(**options):
    return tiny(channels=3, **options)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return f"{path}:tiny"


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "p.h5"
    plan_of(small_network(), *general_chains(), workers=2).save(path)
    return path


def stated_error(capsys):
    """The one line on stderr."""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    return lines[0]


def test_build_show_and_verify(tmp_path, model, capsys):
    path = str(tmp_path / "out.h5")
    options = ["--schedules", "linear,hybrid", "--levels", "1", "--batch-size", "8", "--workers", "3"]
    assert main(["build", model, "-o", path, "--device", "host", *options]) == 0
    assert "linear, hybrid" in capsys.readouterr().out
    assert main(["show", path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["batch_size"], facts["workers"]) == (8, 3)
    (chain,) = facts["chains"]
    assert [s["name"] for s in chain["schedules"]] == ["linear", "hybrid"]
    assert chain["schedules"][1]["levels"] == 1
    assert [e["name"] for e in chain["elements"]] == ["4 Linear", "2 MaxPool2d", "1 ReLU", "0 Conv2d"]
    linear = chain["schedules"][0]
    assert linear["multiply_adds"] == 8 * sum(e["nnz"] for e in chain["elements"][:-1])
    assert sum(level["mv"] for level in linear["by_level"]) == 3
    assert main(["verify", path, "--model", model, "--device", "host"]) == 0
    assert "sound" in capsys.readouterr().out


def test_verify_names_what_differs_from_another_model(tmp_path, model, capsys):
    path = str(tmp_path / "out.h5")
    assert main(["build", model, "-o", path, "--device", "host"]) == 0
    capsys.readouterr()
    other = model.replace(":tiny", ":wider")
    assert main(["verify", path, "--model", other, "--device", "host"]) == 1
    assert "layer 0 Conv2d: out_channels 2 in the plan, 3 in the network" in stated_error(capsys)


def test_a_schedule_that_does_not_fit(tmp_path, model, capsys):
    path = tmp_path / "out.h5"
    arguments = ["build", model, "-o", str(path), "--device", "host", "--schedules", "blelloch"]
    assert main([*arguments, "--memory-limit", "1KiB"]) == 1
    assert "the memory limit is 1024 bytes" in stated_error(capsys)
    assert not path.exists()


def test_a_term_of_another_entry_is_found(plan_file, tmp_path, capsys):
    broken = tmp_path / "broken.h5"
    with h5py.File(plan_file) as source, create(broken) as file:
        for name, value in source.attrs.items():
            file.attrs[name] = value
        for name in source:
            source.copy(name, file)
        product = next(g for g in file["products"].values() if "a_position" in g)
        position = product["a_position"][()]
        position[0] += 1
        product["a_position"][()] = position
    assert main(["show", str(broken)]) == 0
    capsys.readouterr()
    assert main(["verify", str(broken)]) == 1
    assert "terms are not those of its factors" in stated_error(capsys)


def test_verify_makes_every_product_again(plan_file, capsys, monkeypatch):
    made = []
    monkeypatch.setattr("bppsa_cupy.tools.plan.check_against_new", made.append)
    assert main(["verify", str(plan_file)]) == 0
    products = [product for chain in Plan.load(plan_file).chains for product in chain.products.values()]
    assert {(p.a, p.b) for p in made} == {(p.a, p.b) for p in products}


def test_show_is_a_table_a_schedule(plan_file, capsys):
    assert main(["show", str(plan_file)]) == 0
    out = capsys.readouterr().out
    for text in ("chain 2", "5 Linear", "blelloch: ", "hybrid of", "row_wise", "terms", "critical path"):
        assert text in out


def test_show_may_skip_the_checksum_and_says_so(plan_file, capsys):
    content = bytearray(plan_file.read_bytes())
    content[40] ^= 1
    plan_file.write_bytes(content)
    assert main(["show", str(plan_file)]) == 1
    assert "SHA-256" in stated_error(capsys)
    assert main(["show", str(plan_file), "--skip-checksum"]) == 0
    assert "SHA-256 not compared" in capsys.readouterr().out


def test_show_compares_the_checksum_of_large_files_on_request_alone(plan_file, capsys, monkeypatch):
    monkeypatch.setattr("bppsa_cupy.tools.plan.CHECKED_BYTES", plan_file.stat().st_size - 1)
    assert main(["show", str(plan_file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checksum"] is False
    assert main(["show", str(plan_file), "--json", "--checksum"]) == 0
    assert json.loads(capsys.readouterr().out)["checksum"] is True


def test_show_reads_no_pattern_and_no_map(plan_file, capsys, monkeypatch):
    assert main(["show", str(plan_file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(h5py.Dataset, "__getitem__", without_patterns(h5py.Dataset.__getitem__))
    assert main(["show", str(plan_file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == shown
    monkeypatch.undo()
    whole = report(Plan.load(plan_file))
    assert {name: shown[name] for name in whole} == json.loads(json.dumps(whole))


def without_patterns(read):
    def checked(stored, *arguments):
        assert not stored.name.startswith(("/patterns/", "/products/")), f"{stored.name} was read"
        return read(stored, *arguments)

    return checked


@pytest.mark.parametrize("options", [[], ["--schedule", "linear"], ["--chain", "1"]])
def test_draw_writes_a_picture(plan_file, tmp_path, options):
    picture = tmp_path / "p.png"
    assert main(["draw", str(plan_file), "-o", str(picture), *options]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_draw_of_a_chain_that_is_not_there(plan_file, tmp_path, capsys):
    assert main(["draw", str(plan_file), "-o", str(tmp_path / "p.png"), "--chain", "7"]) == 1
    assert "the plan has 3" in stated_error(capsys)


@pytest.mark.parametrize("arguments", [["show"], ["build", "lenet5"], ["fly"], []])
def test_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--levels", "many"], ["--schedules", "serial"], ["--workers", "0"], ["--memory-limit", "2 cakes"]],
)
def test_options_out_of_range_are_usage_errors(options):
    with pytest.raises(SystemExit) as caught:
        main(["build", "lenet5", "-o", "x.h5", *options])
    assert caught.value.code == 2


def test_missing_files_and_models(tmp_path, capsys):
    assert main(["show", str(tmp_path / "none.h5")]) == 1
    assert "does not exist" in stated_error(capsys)
    assert main(["build", "nonsense", "-o", str(tmp_path / "p.h5")]) == 1
    assert "nonsense" in stated_error(capsys)


def test_in_a_pipe_there_is_no_progress_bar(tmp_path, model):
    command = [sys.executable, "-m", "bppsa_cupy.tools.plan", "build", model, "-o", str(tmp_path / "p.h5")]
    done = subprocess.run([*command, "--device", "host"], capture_output=True, encoding="utf-8", check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("n", range(24))
def test_the_picture_is_the_schedule(n):
    for levels in range(up_sweep_levels(n) + 1):
        rows = in_place_rows(n, levels)
        assert rows[-1].array == (None, *((0, k) for k in range(1, n + 1)))
        drawn = [edge.style for row in rows for edge in row.edges if edge.start == edge.end]
        steps = hybrid(n, levels).steps
        dead = dead_products(n, levels)
        assert drawn.count("mm") == sum(s.kind == "mm" for s in steps)
        assert drawn.count("mv") == sum(s.kind == "mv" for s in steps)
        assert drawn.count("dead") == len(dead)
        by_level = {f"L{s.level}" for s in (*steps, *dead)}
        assert by_level <= {row.label for row in rows}


def test_levels_of_the_picture_are_those_of_algorithm_1():
    labels = [row.label for row in in_place_rows(20, up_sweep_levels(20))]
    assert labels == [*(f"L{level}" for level in range(blelloch(20).depth)), "result"]


def test_a_chain_without_elements_can_be_shown_and_drawn(tmp_path, capsys):
    path = str(tmp_path / "p.h5")
    plan_of(random_chain(0)).save(path)
    assert main(["show", path]) == 0
    assert main(["draw", path, "-o", str(tmp_path / "p.png")]) == 0


def test_a_plan_without_chains_has_nothing_to_draw(tmp_path, capsys):
    path = str(tmp_path / "p.h5")
    build_plan([], network={}, fingerprint="0" * 64).save(path)
    assert main(["draw", path, "-o", str(tmp_path / "p.png")]) == 1
    assert "no run of layers to scan: there is none to draw" in stated_error(capsys)


def test_build_says_what_would_fit_of_what_it_leaves_out(tmp_path, capsys):
    path = str(tmp_path / "p.h5")
    options = ["--input-shape", "1,32,32", "--device", "host", "--batch-size", "64"]
    assert main(["build", "lenet5", *options, "-o", path]) == 0
    needed = {name: Plan.load(path).bytes(name) for name in ("linear", "blelloch")}
    capsys.readouterr()
    limit = str(max(needed["linear"], needed["blelloch"] - 1))
    assert main(["build", "lenet5", *options, "-o", path, "--memory-limit", limit]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out")]
    (line,) = lines
    assert line.startswith(
        f"left out: schedule blelloch takes {needed['blelloch']} bytes for a batch of 64, "
    )
    assert "level " in line and "--batch-size " in line and line.endswith("would fit")


@pytest.fixture
def product_file(tmp_path):
    path = tmp_path / "product.h5"
    a = scipy.sparse.random_array((12, 9), density=0.4, rng=np.random.default_rng(0), format="csr")
    bp.plan_product(a.T, a, bp.Pattern.diagonal(9)).save(path)
    return path


def test_show_and_verify_a_planned_product(product_file, capsys):
    product = bp.PlannedProduct.load(product_file)
    assert main(["show", str(product_file), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["checksum"] and [factor["reordered"] for factor in facts["factors"]] == [True, False, False]
    assert [(f["shape"], f["nnz"]) for f in facts["factors"]] == [
        (list(pattern.shape), pattern.nnz) for pattern in product.factors
    ]
    assert [(p["nnz"], p["multiply_adds"]) for p in facts["products"]] == [
        (m.many.pattern.nnz, m.many.multiply_adds) for m in product.multiplications
    ]
    for command in ("show", "verify"):
        assert main([command, str(product_file)]) == 0
    out = capsys.readouterr().out
    assert "reordered at each call" in out and "sound: 2 products" in out
    assert main(["verify", str(product_file), "--model", "lenet5"]) == 1
    assert "a plan is 'bppsa-plan'" in stated_error(capsys)


def test_broken_product_files(product_file, tmp_path, capsys):
    def edit(file):
        group = file["products"][sorted(file["products"])[0]]
        group.attrs["multiply_adds"] += 1

    path = edited(product_file, tmp_path / "broken.h5", edit)
    assert main(["verify", str(path)]) == 1
    assert "multiply-adds" in stated_error(capsys)
    flipped = bytearray(product_file.read_bytes())
    flipped[-9] ^= 1
    path.write_bytes(flipped)
    assert main(["show", str(path)]) == 1
    assert "SHA-256" in stated_error(capsys)
