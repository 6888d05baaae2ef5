"""The code in the documents runs, and their links lead somewhere."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from audio_cases import clips_of, tree
from documents import blocks, run_commands

from bppsa_cupy.layers import LAYERS
from bppsa_cupy.models import MODELS, build_model
from bppsa_cupy.network.backward import METHODS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
#: Pages with examples, all of which run here or in the test that is named.
RUN = {
    "README.md": "here",
    "adding-an-operator.md": "here",
    "cells.md": "docs/test_cells_page",
    "jacobians.md": "here",
    "jax.md": "here",
    "layers.md": "here",
    "linear-recurrences.md": "here",
    "pipelines.md": "here",
    "products.md": "here",
    "pruning.md": "here",
    "pytorch-jacobians.md": "here",
    "pytorch.md": "here",
    "ranks.md": "tools/test_ranks_training",
    "recurrent.md": "here",
    "start.md": "here",
    "training.md": "here",
}
#: The tests that a new layer and its kernel pair are parameters of.
BROUGHT = [
    "tests/jacobians/test_jacobians.py",
    "tests/raw_kernels/test_kernel_pairs.py",
    "tests/raw_kernels/test_kernels_compile.py",
    "tests/layers/test_layers.py",
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
JACOBIANS, JAX, LAYERS_PAGE, LINEAR, PIPELINES, PRODUCTS, PRUNING, PYTORCH, RECURRENT, START, TRAINING = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for name in (
        "jacobians", "jax", "layers", "linear-recurrences", "pipelines", "products", "pruning", "pytorch",
        "recurrent", "start", "training",
    )
)  # fmt: skip


def run_examples(text, names=None):
    """The Python blocks of a document in their order, in one room; the names they leave."""
    names = {} if names is None else names
    for example in blocks(text, "python"):
        exec(example, names)
    return names


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)[)#]", prose):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_page_with_examples_is_run():
    fenced = {path.name for path in DOCUMENTS if re.search("^```(python|sh)$", path.read_text("utf-8"), re.M)}
    assert fenced == set(RUN)
    assert all(place == "here" or (ROOT / "tests" / f"{place}.py").exists() for place in RUN.values())


@pytest.mark.parametrize("name", [*LAYERS, *MODELS])
def test_the_page_of_layers_names_it(name):
    assert f"`{name}`" in LAYERS_PAGE


def test_the_factory_of_the_page_of_layers_makes_a_model(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("".join(blocks(LAYERS_PAGE, "python")), encoding="utf-8")
    net = build_model(f"{file}:perceptron", (5,), classes=3, dtype="float64")
    assert net.forward(np.zeros((2, 5))).shape == (2, 3)


@pytest.mark.parametrize("name", METHODS)
def test_the_page_on_training_names_it(name):
    assert f"| `{name}` |" in TRAINING


@pytest.mark.long
def test_the_examples_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_examples(README)
    assert type(names["model"].rnn).__module__ == "bppsa_cupy.torch.modules"
    assert names["model"].rnn.weight_hh_l0.grad is not None
    run_commands(README)
    assert (tmp_path / "lenet5.h5").exists()


@pytest.mark.long
def test_the_examples_of_the_start_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_examples(START)
    trained, *summary, part, record, scanned = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d\.\d+ \('blelloch: \d+ mv and \d+ mm in \d+ levels',\)", trained)
    assert summary[0] == "float32, input 3 × 32 × 32" and part == "(16, 1176) True"
    assert summary[-1] == "Jacobians of one sample: 373,968 entries, 3.05 MB"
    assert record == "Conv2d (3072, 4704) 352800"
    assert names["record"].to_scipy(sample=0).shape == (3072, 4704)
    assert scanned == "9 True"


@pytest.mark.long
def test_the_commands_of_the_start_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_commands(START)
    made = {path.name for path in tmp_path.iterdir()}
    assert made >= {"plan.h5", "lenet5.h5", "jacobians.h5", "jacobians.png"}


@pytest.mark.long
def test_the_examples_of_the_page_on_training_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_examples(TRAINING)["sgd"].lr == 0.1


@pytest.mark.long
def test_the_examples_of_the_page_on_pruning_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    masks = run_examples(PRUNING)["masks"]
    assert sum(map(np.size, masks.values())) == 6 * 25 + 11760
    run_commands(PRUNING)
    assert (tmp_path / "pruned.h5").exists()


@pytest.mark.long
def test_the_examples_of_the_page_on_pipelines_run(capsys):
    run_examples(PIPELINES)
    assert re.fullmatch(r"45 steps, 3 stages, loss \d\.\d+\n", capsys.readouterr().out)
    alone, ranks = "".join(blocks(PIPELINES, "sh")).splitlines()
    alone, ranks = (shlex.split(line, comments=True) for line in (alone, ranks))
    assert ranks == ["mpiexec", "-n", "3", *alone]
    assert import_module("bppsa_cupy.tools.train").main([*alone[1:], "--epochs", "1"]) == 0


@pytest.mark.long
def test_the_examples_of_the_recurrent_page_run(capsys):
    run_examples(RECURRENT)
    *first, scan, same, shape, wide, shapes = capsys.readouterr().out.splitlines()
    assert len(first) == 1 and first[0].count("l0: ") == 2
    assert wide == f"(256, 4) {2 * 64 * 4 + 2 * 64}"
    assert scan.startswith("0 LSTM l0: chunked, ")
    assert (same, shape, shapes) == ("True", "(1, 4, 20)", "(4, 100, 20) (1, 4, 20)")


@pytest.mark.long
def test_the_examples_of_the_page_on_linear_recurrences_run(capsys):
    run_examples(LINEAR)
    shapes, loss, *trained = capsys.readouterr().out.splitlines()
    assert shapes == "(2, 1000, 64) (2, 1000, 64) (2, 64)"
    assert float(loss.removeprefix("loss ")) < 0.6, "it learns"
    assert len("\n".join(trained)) >= 40, "text that was drawn"


@pytest.mark.long
def test_the_examples_of_the_page_on_pytorch_run(capsys):
    run_examples(PYTORCH)
    trained, cell, pruned, bent, batched, gradients = capsys.readouterr().out.splitlines()
    assert pruned == "PrunedConv2d 0.1"
    assert bent == "True" and batched == "torch.Size([5, 2, 40, 5, 2, 8]) torch.Size([5, 2, 40])"
    assert trained == "<class 'bppsa_cupy.torch.modules.GRU'> True"
    assert cell.startswith("torch.Size([100, 4, 20]) torch.Size([1, 4, 20]) ['weight_ih_l0', ")
    assert gradients == "(4, 100, 8) (60, 20) (1, 4, 20)"


@pytest.mark.long
def test_the_examples_of_the_page_on_pytorchs_jacobians_run(capsys):
    run_examples((DOCS / "pytorch-jacobians.md").read_text(encoding="utf-8"))
    records, shapes, *layers, chains = capsys.readouterr().out.splitlines()
    assert records == "JacobianRecords(0 step l0 × 100) (100, 8, 20, 20)"
    assert shapes == "(8, 20) (100, 8, 20) (0, 99)"
    assert [line.split()[1] for line in layers] == ["Conv2d", "ReLU", "MaxPool2d", "Linear"]
    assert chains.endswith("JacobianRecords(0 LSTM l1 × 50)] (8, 1)")


@pytest.mark.long
def test_the_examples_of_the_page_on_jax_run(capsys):
    pytest.importorskip("jax", reason="the page takes JAX, of the extra jax")
    run_examples(JAX)
    *same, exponents = capsys.readouterr().out.splitlines()
    assert same == ["True", "True"] and exponents.startswith("(4, 20) [JacobianRecords(0 GRU l0 × 100), ")


@pytest.mark.long
def test_the_examples_of_the_page_on_products_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in blocks(PRODUCTS, "python"):
        exec(example, names)
    equal, shapes, *steps, centre, many, loaded = capsys.readouterr().out.splitlines()
    assert (equal, shapes) == ("True", "True (500, 600)")
    assert 3 <= len(steps) <= 5 and all(" 1" in step and step.endswith(" iterations") for step in steps)
    u = names["u"]
    assert np.abs(names["laplace"] @ u - 5 / 64**2 * np.exp(u)).max() < 1e-13
    assert float(centre.removeprefix("u at the centre: ")) == pytest.approx(u.max(), abs=1e-4)
    assert many == f"({names['galerkin'].pattern.nnz}, 16) (441, 441)"
    assert loaded.startswith("<product (441, 3969) · (3969, 3969) · (3969, 441): ")
    coarse = names["r"] @ (names["jacobian"] @ names["p"])
    assert abs(names["galerkin"].to_scipy(names["coarse"]) - coarse).max() < 1e-12


@pytest.mark.long
def test_the_examples_of_the_page_on_jacobians_run(capsys):
    names = {}
    for example in blocks(JACOBIANS, "python"):
        exec(example, names)
    shapes, forgets, span = capsys.readouterr().out.splitlines()
    assert shapes == "JacobianRecords(0 GRU l0 × 200, 1 Linear) (200, 8, 20, 20)"
    assert re.fullmatch(
        r"half of a gradient is lost in \d\.\d steps; over all 200 it shrinks to 10\^-\d+", forgets
    )
    assert re.fullmatch(r"\(50, 149\) \(8,\) \de-\d+", span)


@pytest.mark.long
def test_the_commands_of_the_page_on_jacobians_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_commands(JACOBIANS)
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"step.png", "spectrum.png", "norms.png", "lyapunov.png"}


@pytest.mark.long
@pytest.mark.usefixtures("librosa")
def test_the_commands_of_the_recurrent_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tree(tmp_path / "instruments", clips_of([22000] * 10, rate=22050, channels=2))
    run_commands(RECURRENT)
    out = capsys.readouterr().out
    assert "forward over time: 0 GRU l0: newton over " in out
    assert "backward over time: 0 LSTM l1_reverse: chunked, " in out
    first = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert '"forward_ways": ["0 RNN l0: ' in first


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_the_operator_of_the_guide_passes_the_tests(tmp_path):
    """The guide's files and lines in a copy of the package, and the tests that they bring."""
    for source, target in (
        *(("bppsa_cupy", "bppsa_cupy"), ("tests", "tests"), ("setup.cfg", "setup.cfg")),
        *((name, f"bppsa_cupy/{name}") for name in ("jacobians", "raw_kernels", "tools")),
    ):
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, tmp_path / target, ignore=ignored)
        else:
            shutil.copy(ROOT / source, tmp_path / target)
    guide = (ROOT / "docs" / "adding-an-operator.md").read_text(encoding="utf-8")
    files = re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", guide, flags=re.MULTILINE | re.DOTALL)
    assert len(files) == 4
    for name, text in files:
        place = name if name.startswith("bppsa_cupy/") else f"bppsa_cupy/{name}"
        (tmp_path / place).write_text(text, encoding="utf-8")
    cases = "tests/support/layer_cases.py"
    for name, old, new in (
        (
            "bppsa_cupy/layers/__init__.py",
            "from bppsa_cupy.layers.tanh",
            "from bppsa_cupy.layers.softsign import Softsign\n",
        ),
        ("bppsa_cupy/layers/__init__.py", "        Tanh,\n", "        Softsign,\n"),
        ("bppsa_cupy/layers/__init__.py", '    "Tanh",', '    "Softsign",\n'),
        (cases, "    Tanh,", "    Softsign,\n"),
        (cases, '    same("Sigmoid"', '    same("Softsign", Softsign, (4, 9), 1),\n'),
        ("tests/support/kernel_cases.py", '"relu_fill"', '"softsign_fill", '),
    ):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} has no single {old!r}"
        (tmp_path / name).write_text(text.replace(old, new + old), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "softsign", *BROUGHT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None and int(passed[1]) >= 20, result.stdout
