"""Imports run one way: between layers, between modules, and through the doors of the planner's folders.

Every import counts: at the top of a module, inside of functions, and those for type checkers alone.
"""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Layers in order; a module belongs to the longest prefix that fits.
LAYERS = [
    [
        "bppsa_cupy.errors",
        "bppsa_cupy.arguments",
        "bppsa_cupy.conversion",
        "bppsa_cupy.csr",
        "bppsa_cupy.geometry",
        "bppsa_cupy.system",
    ],
    ["bppsa_cupy.raw_kernels"],
    ["bppsa_cupy.cells"],
    ["bppsa_cupy.devices"],
    ["bppsa_cupy.timescan"],
    ["bppsa_cupy.jacobians", "bppsa_cupy.records"],
    ["bppsa_cupy.layers"],
    ["bppsa_cupy.functional"],
    ["bppsa_cupy.torch", "bppsa_cupy.jax"],
    ["bppsa_cupy.plan"],
    ["bppsa_cupy.scan"],
    ["bppsa_cupy.products"],
    ["bppsa_cupy.network"],
    ["bppsa_cupy.stability"],
    ["bppsa_cupy.distributed"],
    ["bppsa_cupy.models", "bppsa_cupy.data"],
    ["bppsa_cupy.training"],
    ["bppsa_cupy.pipeline"],
    ["bppsa_cupy.tools.pictures"],
    ["bppsa_cupy"],
    ["bppsa_cupy.tools"],
]
FOLDERS = {"bppsa_cupy": "bppsa_cupy", "jacobians": "bppsa_cupy.jacobians",
           "raw_kernels": "bppsa_cupy.raw_kernels", "tools": "bppsa_cupy.tools"}  # fmt: skip


@cache
def read_modules():
    """The syntax tree of every module, by name."""
    trees = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def names_of(tree):
    """What the statements at the top of a module bind, but for the modules that Python adds to a package."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def imports_of(trees):
    """Which modules each module imports: `from package import name` imports the module of that name where the
    package binds no such name itself, and the package elsewhere."""
    bound = {module: set(names_of(tree)) for module, tree in trees.items()}
    graph = {}
    for module, tree in trees.items():
        found = graph[module] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names if alias.name in trees}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{module}, line {node.lineno}: imports name the whole package"
                if node.module in trees:
                    inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                    found |= {
                        full if full in trees and name not in bound[node.module] else node.module
                        for name, full in inner.items()
                    }
    return graph


@cache
def imports():
    return imports_of(read_modules())


def layer_of(module):
    fits = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if module == prefix or (module.startswith(prefix + ".") and prefix != "bppsa_cupy")
    ]
    assert fits, f"{module} belongs to no layer: add it to LAYERS"
    return max(fits)[1]


def assert_none(is_wrong):
    """No import (module, other) for which `is_wrong` holds."""
    pairs = [(module, other) for module, imported in imports().items() for other in sorted(imported)]
    assert len(pairs) > 500
    wrong = [f"{module} imports {other}" for module, other in pairs if is_wrong(module, other)]
    assert not wrong, "\n".join(wrong)


def test_layers_import_from_earlier_ones():
    assert_none(lambda module, other: layer_of(other) > layer_of(module))


def test_no_circle_of_modules():
    TopologicalSorter(imports()).prepare()  # raises CycleError, which names the modules


def test_planning_imports_no_device():
    others = ("bppsa_cupy.devices", "bppsa_cupy.layers", "bppsa_cupy.jacobians")
    assert_none(lambda module, other: module.startswith("bppsa_cupy.plan") and other.startswith(others))


def importers(*packages):
    """Modules of this project that import one of `packages`, at whatever place in their text."""
    return {
        module
        for module, tree in read_modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if name.split(".")[0] in packages
    }


#: Modules that may import optional packages, by the start of their names.
IMPORTERS = {
    ("cupy", "cupyx"): ("bppsa_cupy.devices.cuda",),
    ("torch",): ("bppsa_cupy.torch", "bppsa_cupy.tools"),
    ("jax", "jaxlib"): ("bppsa_cupy.jax", "bppsa_cupy.tools"),
    ("mpi4py",): ("bppsa_cupy.distributed.guard",),
}


@pytest.mark.parametrize("packages", IMPORTERS)
def test_only_doors_import_optional_packages(packages):
    assert all(module.startswith(IMPORTERS[packages]) for module in importers(*packages))
