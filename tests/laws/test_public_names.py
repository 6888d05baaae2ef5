"""The package's names, imported when they are first used: those that type checkers read, and no others."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bppsa_cupy as bp
import bppsa_cupy.scan.numeric
from bppsa_cupy import layers


def test_every_name_is_what_type_checkers_take_it_for():
    tree = ast.parse(Path(bp.__file__).read_text(encoding="utf-8"))
    (block,) = (
        node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" == ast.unparse(node.test)
    )
    homes = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            homes |= {alias.name: node.module for alias in node.names}
    declared = set(homes) - {"*", "__all__"} | {"functional"} | set(layers.__all__)
    assert declared == set(bp.__all__) <= set(dir(bp))
    for name in sorted(declared - {"functional"} - set(layers.__all__)):
        namespace = {}
        exec(f"from {homes[name]} import {name}", namespace)
        assert getattr(bp, name) is namespace[name]
    assert all(getattr(bp, name) is getattr(layers, name) for name in layers.__all__)
    assert callable(bp.scan) and bp.functional.__name__ == "bppsa_cupy.functional"


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'bppsa_cupy' has no attribute 'Sequental'"):
        bp.Sequental  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Conv4d'"):
        from bppsa_cupy import Conv4d  # noqa: F401


@pytest.mark.parametrize("folder", ["jacobians", "raw_kernels"])
def test_a_mapped_folder_is_refused_as_a_top_level_package(folder):
    command, checkout = [sys.executable, "-c", f"import {folder}"], Path(__file__).parents[2]
    result = subprocess.run(command, cwd=checkout, capture_output=True, encoding="utf-8")
    assert result.returncode == 1 and f"ImportError: import bppsa_cupy.{folder}" in result.stderr
