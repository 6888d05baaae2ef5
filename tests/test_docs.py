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

from bppsa_cupy.layers import LAYERS
from bppsa_cupy.models import MODELS
from bppsa_cupy.network.backward import METHODS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: The tests that a new layer and its kernel pair are parameters of.
BROUGHT = [f"tests/test_{name}.py" for name in ("jacobians", "kernel_pairs", "kernels_compile", "layers")]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTORCH = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
PRODUCTS = (ROOT / "docs" / "products.md").read_text(encoding="utf-8")
JACOBIANS = (ROOT / "docs" / "jacobians.md").read_text(encoding="utf-8")
RECURRENT = (ROOT / "docs" / "recurrent.md").read_text(encoding="utf-8")


def blocks(text, language):
    """The fenced code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def run_commands(text):
    """Every line of the shell blocks of a document, by the functions that its commands call."""
    for line in "".join(blocks(text, "sh")).splitlines():
        name, *arguments = shlex.split(line)
        tool = import_module(f"bppsa_cupy.tools.{name.removeprefix('bppsa-')}")
        assert tool.main(arguments) == 0, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)[)#]", prose):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("name", [*LAYERS, *MODELS, *METHODS])
def test_the_readme_names_it(name):
    assert f"`{name}`" in README


def test_the_examples_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second, recurrent, third = blocks(README, "python")
    names = {}
    exec(first, names)
    assert re.match(r"\d\.\d+ \('blelloch: \d+ mv and \d+ mm in \d+ levels',\)", capsys.readouterr().out)
    names["net"].forward(names["x"])
    names["bp"].save_jacobians("jacobians.h5", names["net"])
    exec(second, names)
    assert capsys.readouterr().out == "Conv2d (3072, 4704) 352800\n"
    assert names["matrix"].shape == (3072, 4704)
    exec(recurrent, names)
    assert re.fullmatch(r"\('0 LSTM l0: chunked, .*'0 LSTM l1: chunked, .*\)\n", capsys.readouterr().out)
    exec(third, names)
    assert sum(map(np.size, names["masks"].values())) == 6 * 75 + 11760


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_commands(README)
    assert {path.name for path in tmp_path.iterdir()} >= {
        "plan.h5",
        "lenet5.h5",
        "jacobians.h5",
        "jacobians.png",
        "pruned.h5",
    }


def test_the_examples_of_the_recurrent_page_run(capsys):
    names = {}
    for example in blocks(RECURRENT, "python"):
        exec(example, names)
    *first, scan, same, shape, wide, shapes = capsys.readouterr().out.splitlines()
    assert len(first) == 1 and first[0].count("l0: ") == 2
    assert wide == f"(256, 4) {2 * 64 * 4 + 2 * 64}"
    assert scan.startswith("0 LSTM l0: chunked, ")
    assert (same, shape, shapes) == ("True", "(1, 4, 20)", "(4, 100, 20) (1, 4, 20)")


def test_the_examples_of_the_page_on_pytorch_run(capsys):
    names = {}
    for example in blocks(PYTORCH, "python"):
        exec(example, names)
    trained, cell, gradients = capsys.readouterr().out.splitlines()
    assert trained == "<class 'bppsa_cupy.torch.modules.GRU'> True"
    assert cell.startswith("torch.Size([100, 4, 20]) torch.Size([1, 4, 20]) ['weight_ih_l0', ")
    assert gradients == "(4, 100, 8) (60, 20) (1, 4, 20)"


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


def test_the_commands_of_the_page_on_jacobians_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_commands(JACOBIANS)
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"step.png", "spectrum.png", "norms.png", "lyapunov.png"}


def test_the_commands_of_the_recurrent_page_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("librosa", reason="features take librosa, of the extra audio")
    monkeypatch.chdir(tmp_path)
    tree(tmp_path / "instruments", clips_of([22000] * 10, rate=22050, channels=2))
    run_commands(RECURRENT)
    out = capsys.readouterr().out
    assert "forward over time: 0 GRU l0: newton over " in out
    assert "backward over time: 0 LSTM l1_reverse: chunked, " in out
    first = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert '"forward_ways": ["0 RNN l0: ' in first


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
    for name, old, new in (
        (
            "bppsa_cupy/layers/__init__.py",
            "from bppsa_cupy.layers.tanh",
            "from bppsa_cupy.layers.softsign import Softsign\n",
        ),
        ("bppsa_cupy/layers/__init__.py", "        Tanh,\n", "        Softsign,\n"),
        ("bppsa_cupy/layers/__init__.py", '    "Tanh",', '    "Softsign",\n'),
        ("tests/layer_cases.py", "    Tanh,", "    Softsign,\n"),
        ("tests/layer_cases.py", '    same("Sigmoid"', '    same("Softsign", Softsign, (4, 9), 1),\n'),
        ("tests/kernel_cases.py", '"sigmoid_fill"', '"softsign_fill", '),
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
