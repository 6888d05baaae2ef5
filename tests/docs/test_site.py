"""The parts of the site: navigation, headings and the reference, without building it."""

import ast
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
REFERENCE = [
    name
    for page in sorted((DOCS / "reference").glob("*.md"))
    for name in re.findall(r"^::: bppsa_cupy\.(\S+)$", page.read_text("utf-8"), re.MULTILINE)
]
#: Public names that are no class and no function.
WITHOUT_A_PAGE = {"LAYERS", "Shape", "functional"}


def resolve(name):
    """Import the object that a reference name stands for."""
    room, _, last = f"bppsa_cupy.{name}".rpartition(".")
    return getattr(import_module(room), last)


def test_the_reference_has_every_public_name_once():
    assert len(set(REFERENCE)) == len(REFERENCE)
    public = [getattr(bp, name) for name in bp.__all__ if name not in WITHOUT_A_PAGE]
    public += [getattr(room, name) for room in (functional, torch) for name in room.__all__]
    documented = [resolve(name) for name in REFERENCE]
    assert [item for item in public if item not in documented] == []


def test_the_names_of_the_package_are_those_that_type_checkers_read():
    tree = ast.parse((ROOT / "bppsa_cupy/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in imports for alias in node.names if alias.name != "*"}
    assert homes == {name: f"bppsa_cupy.{home}" for name, home in bp._HOMES.items()}


def test_modules_show_their_public_names_only():
    for room in (bp, functional, torch):
        names = {name for name in dir(room) if name[0] != "_"} - set(room.__all__)
        assert all(isinstance(getattr(room, name), ModuleType) for name in names), names


@pytest.mark.parametrize("name", REFERENCE)
def test_a_name_of_the_reference_has_an_example_and_is_no_module(name):
    """A function with the name of its module would be taken for the module."""
    assert re.search(r"Examples\n +-{8}\n.*>>>", resolve(name).__doc__, re.DOTALL)
    assert not isinstance(sys.modules.get(f"bppsa_cupy.{name}"), ModuleType)


def test_the_citation_is_of_this_version():
    assert f"\nversion: {bp.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {bp.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
