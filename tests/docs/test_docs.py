"""The code of every page runs, and links lead to files."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import mpi
import pytest
from audio_cases import clips_of, tree

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
#: Pages whose Python blocks and commands run here, by name; those of the guide to operators run below.
PAGES = {
    path.stem: path
    for path in DOCUMENTS
    if re.search("^```(python|sh)$", path.read_text("utf-8"), re.M) and path.stem != "adding-an-operator"
}
#: The tests that a new layer and its kernel pair are parameters of.
BROUGHT = [
    "tests/jacobians/test_jacobians.py",
    "tests/raw_kernels/test_kernel_pairs.py",
    "tests/raw_kernels/test_kernels_compile.py",
    "tests/layers/test_layers.py",
]


def blocks(text, language):
    """The fenced code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)[)#]", prose):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def prepare(text):
    """Files that the commands of pages read, in the current folder."""
    if "leaky.py" in text:
        script = next(block for block in blocks(text, "python") if "net = " in block and "cell = " in block)
        head = script[: script.index("net = ")]
        Path("leaky.py").write_text(f"{head}\n\ndef make():\n    return cell\n", encoding="utf-8")
    if "bppsa-data audio instruments" in text:
        tree(Path("instruments"), clips_of([22000] * 10, rate=22050, channels=2))


def run_command(line):
    """A command by the function that it calls, or by as many ranks as mpiexec starts; others are skipped."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["mpiexec", "-n"] and words[3].startswith("bppsa-"):
        ranks, (script, *arguments) = int(words[2]), words[3:]
        mpi.run(ranks, "-m", f"bppsa_cupy.tools.{script.removeprefix('bppsa-')}", *arguments)
    elif words and words[0].startswith("bppsa-"):
        tool = import_module(f"bppsa_cupy.tools.{words[0].removeprefix('bppsa-')}")
        assert tool.main(words[1:]) == 0, line


@pytest.mark.long
@pytest.mark.usefixtures("pytorch", "librosa")
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    text, names = PAGES[page].read_text(encoding="utf-8"), {}
    if "import jax" in text:
        pytest.importorskip("jax", reason="the page takes JAX, of the extra jax")
    for number, example in enumerate(blocks(text, "python")):
        if "Group()" in example or "bp.Group(" in example:
            program = tmp_path / f"program{number}.py"
            program.write_text(example, encoding="utf-8")
            mpi.run(2, program)
        else:
            exec(compile(example, f"{page}, block {number}", "exec"), names)
    prepare(text)
    for line in "".join(blocks(text, "sh")).replace("\\\n", " ").splitlines():
        run_command(line)


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
