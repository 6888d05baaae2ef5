"""The code of README, of every page and docstring runs and prints what they show; links lead somewhere."""

import contextlib
import doctest
import io
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

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
RANKS, GUIDE = DOCS / "how-to" / "ranks.md", DOCS / "developers" / "adding-an-operator.md"
#: A block of Python or commands, and the output that a page shows below it.
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
#: Pages whose blocks run one after another in one process.
PAGES = [p for p in DOCUMENTS if p not in (RANKS, GUIDE) and BLOCK.search(p.read_text(encoding="utf-8"))]
#: Modules whose docstrings have examples.
MODULES = [
    ".".join(("bppsa_cupy", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    for root, folder in ((ROOT / "bppsa_cupy", "."), (ROOT, "jacobians"), (ROOT, "tools"))
    for path in sorted((root / folder).rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]
#: The tests that a new layer and its kernel pair are parameters of.
BROUGHT = [
    "tests/jacobians/test_jacobians.py",
    "tests/raw_kernels/test_kernel_pairs.py",
    "tests/raw_kernels/test_kernels_compile.py",
    "tests/layers/test_layers.py",
]


def run_page(text):
    """Run the blocks of a page in their order; yield what the page shows and what a block prints."""
    names = {"__name__": "page"}
    for language, code, shown in BLOCK.findall(text):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if language == "python":
                exec(code, names)
            else:
                run_commands(code)
        if shown:
            yield shown, printed.getvalue()


def run_commands(lines):
    """Run each line by the function that its command calls."""
    for line in lines.splitlines():
        name, *arguments = shlex.split(line, comments=True)
        tool = import_module(f"bppsa_cupy.tools.{name.removeprefix('bppsa-')}")
        assert tool.main(arguments) == 0, line


def differs(shown, printed):
    """Whether words differ, or numbers by more than a tenth: rounding is that of the machine."""
    if NUMBER.sub("", shown).split() != NUMBER.sub("", printed).split():
        return True
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return any(abs(float(a) - float(b)) > 0.1 * abs(float(a)) + 0.05 * ("." in a) for a, b in pairs)


def name_of(path):
    """A page's path from the root."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files(document):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)[)#]", prose):
        generated = target.startswith("commands/bppsa-")
        assert generated or (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_commands_of_a_page_have_the_options_that_they_use(document):
    text = document.read_text(encoding="utf-8")
    for lines in re.findall(r"^```(?:sh|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in lines.splitlines():
            words = shlex.split(line, comments=True)
            words = words[3:] if words[:2] == ["mpiexec", "-n"] else words
            if words and words[0].startswith("bppsa-"):
                import_module(f"bppsa_cupy.tools.{words[0][6:]}").parser().parse_args(words[1:])


@pytest.mark.long
@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_docstrings_print_what_they_show(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    room = module.split(".")[1]
    if room in ("jax", "torch"):
        pytest.importorskip(room, reason=f"the examples need the extra {room}")
    assert doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name == "jax.md":
        pytest.importorskip("jax", reason="the page needs JAX, of the extra jax")
    for shown, printed in run_page(page.read_text(encoding="utf-8")):
        assert not differs(shown, printed), f"the page shows\n{shown}\nand the code prints\n{printed}"


@pytest.mark.long
def test_the_program_of_the_page_on_ranks(tmp_path):
    ((_, code, shown),) = BLOCK.findall(RANKS.read_text(encoding="utf-8"))
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    printed = "\n".join(sorted(mpi.run_ranks(2, program).stdout.splitlines()))
    assert not differs(shown, printed), printed


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
    guide = (DOCS / "developers" / "adding-an-operator.md").read_text(encoding="utf-8")
    files = re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", guide, flags=re.MULTILINE | re.DOTALL)
    assert len(files) == 4
    for name, text in files:
        place = name if name.startswith("bppsa_cupy/") else f"bppsa_cupy/{name}"
        (tmp_path / place).write_text(text, encoding="utf-8")
    cases = "tests/support/layer_cases.py"
    for name, old, new in (
        (
            "bppsa_cupy/layers/__init__.py",
            "from bppsa_cupy.layers.stack",
            "from bppsa_cupy.layers.softsign import Softsign\n",
        ),
        ("bppsa_cupy/layers/__init__.py", '"SiLU",', '"Softsign", '),
        (cases, '    same("Sigmoid"', '    same("Softsign", bp.Softsign, (4, 9), 1),\n'),
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
