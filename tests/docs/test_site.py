"""The site: pages in the navigation, public names in the reference, numbers from the results."""

import re
import sys
from importlib import import_module
from pathlib import Path

import bppsa_cupy as bp
from bppsa_cupy import functional, torch

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Public names that are no class and no function.
WITHOUT_A_PAGE = {"LAYERS", "Shape", "functional"}


def test_the_navigation_has_every_page():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    navigation = re.findall(r"^ +- .*?([\w/-]+)\.md$", text, re.MULTILINE)
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")}
    notebooks = {f"notebooks/{path.stem}" for path in (DOCS / "notebooks").glob("*.py")}
    of_the_root = {"index", *(path.stem.lower() for path in ROOT.glob("*.md") if path.stem != "README")}
    assert sorted(navigation) == sorted(pages | notebooks | of_the_root)


def test_the_reference_has_every_public_name_once():
    reference = [
        name
        for page in sorted((DOCS / "reference").glob("*.md"))
        for name in re.findall(r"^::: bppsa_cupy\.(\S+)$", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(set(reference)) == len(reference)
    documented = []
    for name in reference:
        room, _, last = f"bppsa_cupy.{name}".rpartition(".")
        documented.append(getattr(import_module(room), last))
    public = [getattr(bp, name) for name in bp.__all__ if name not in WITHOUT_A_PAGE]
    public += [getattr(room, name) for room in (functional, torch) for name in room.__all__]
    assert [one for one in public if one not in documented] == []


def test_the_table_and_the_picture_follow_from_the_results(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "site")
    gains = import_module("gains")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert gains.page(readme) == readme
    assert (DOCS / "site" / "gains.svg").read_text(encoding="utf-8") == gains.picture()
    del sys.modules["gains"]


def test_the_citation_is_of_this_version():
    assert f"\nversion: {bp.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {bp.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
