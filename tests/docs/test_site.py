"""The site: what it is made of, without building it; and that README's numbers are those of the results."""

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import bppsa_cupy as bp
from bppsa_cupy import functional, torch

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAVIGATION = re.findall(r"^ +- .*?([\w/-]+)\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
REFERENCE = [
    name
    for page in sorted((DOCS / "reference").glob("*.md"))
    for name in re.findall(r"^::: bppsa_cupy\.(\S+)$", page.read_text("utf-8"), re.MULTILINE)
]
#: Public names that are no class and no function.
WITHOUT_A_PAGE = {"LAYERS", "Shape", "functional"}


@pytest.fixture(scope="module")
def gains():
    """docs/site/gains.py as a module."""
    sys.path.insert(0, str(DOCS / "site"))
    try:
        yield import_module("gains")
    finally:
        sys.path.remove(str(DOCS / "site"))


def test_the_navigation_has_every_page():
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")}
    notebooks = {f"notebooks/{path.stem}" for path in (DOCS / "notebooks").glob("*.py")}
    of_the_root = {"index", *(path.stem.lower() for path in ROOT.glob("*.md") if path.stem != "README")}
    assert sorted(NAVIGATION) == sorted(pages | notebooks | of_the_root)


def found(name):
    """What a name of the reference is."""
    room, _, last = f"bppsa_cupy.{name}".rpartition(".")
    return getattr(import_module(room), last)


def test_the_reference_has_every_public_name_once():
    assert len(set(REFERENCE)) == len(REFERENCE)
    public = [getattr(bp, name) for name in bp.__all__ if name not in WITHOUT_A_PAGE]
    public += [getattr(room, name) for room in (functional, torch) for name in room.__all__]
    documented = [found(name) for name in REFERENCE]
    assert [one for one in public if one not in documented] == []


@pytest.mark.parametrize("name", REFERENCE)
def test_a_name_of_the_reference_is_documented_and_no_module(name):
    """A function with the name of its module would be taken for the module."""
    assert found(name).__doc__
    assert not isinstance(sys.modules.get(f"bppsa_cupy.{name}"), ModuleType)


def test_the_table_and_the_picture_follow_from_the_results(gains):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert gains.page(readme) == readme
    assert (DOCS / "site" / "gains.svg").read_text(encoding="utf-8") == gains.picture()


@pytest.mark.parametrize(
    ("value", "text"), [(0.8703, "0.87"), (1.0, "1.0"), (9.96, "10"), (41.4, "41"), (8774.1, "8,800")]
)
def test_ratios_have_two_digits(gains, value, text):
    assert gains.digits(value) == text


def test_the_citation_is_of_this_version():
    assert f"\nversion: {bp.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {bp.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
