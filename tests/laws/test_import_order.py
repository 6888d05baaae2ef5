"""Imports run one way: between layers, between modules, and through `__init__` of the planner's folders.

Every import counts: at the top of a module, inside of functions, and those for type checkers alone.
"""

import ast
from collections.abc import Iterator
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
    ["bppsa_cupy.plan"],
    ["bppsa_cupy.scan"],
    ["bppsa_cupy.products"],
    ["bppsa_cupy.torch", "bppsa_cupy.jax"],
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
def trees() -> dict[str, ast.Module]:
    """The syntax tree of every module, by name."""
    result = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            result[name] = ast.parse(path.read_text(encoding="utf-8"))
    return result


def imports_of(module: str) -> Iterator[str]:
    """What a module imports at whatever place: of `from package import name` both."""
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{module}: imports name the whole package"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if name in trees() and not binds(node.module, name))
            if not all(name in trees() and not binds(node.module, name) for name in inner):
                yield node.module


@cache
def bound_by(module: str) -> set[str]:
    """Names that the statements at the top of a module bind."""
    names: set[str] = set()
    for node in trees()[module].body if module in trees() else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def binds(module: str, name: str) -> bool:
    return name.rpartition(".")[2] in bound_by(module)


@cache
def graph() -> dict[str, set[str]]:
    return {module: {other for other in imports_of(module) if other in trees()} for module in trees()}


def layer_of(module: str) -> int:
    fits = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if module == prefix or (module.startswith(prefix + ".") and prefix != "bppsa_cupy")
    ]
    assert fits, f"{module} belongs to no layer: add it to LAYERS"
    return max(fits)[1]


def test_layers_import_from_earlier_ones() -> None:
    pairs = [(module, other) for module, imported in graph().items() for other in imported]
    assert not [pair for pair in pairs if layer_of(pair[1]) > layer_of(pair[0])]
    others = ("bppsa_cupy.devices", "bppsa_cupy.layers", "bppsa_cupy.jacobians")
    assert not [
        pair for pair in pairs if pair[0].startswith("bppsa_cupy.plan") and pair[1].startswith(others)
    ]


def test_no_circle_of_modules() -> None:
    TopologicalSorter(graph()).prepare()  # raises CycleError, which names the modules


#: Modules that may import optional packages, by the start of their names.
IMPORTERS = {
    ("cupy", "cupyx"): ("bppsa_cupy.devices.cuda",),
    ("torch",): ("bppsa_cupy.torch", "bppsa_cupy.tools"),
    ("jax", "jaxlib"): ("bppsa_cupy.jax", "bppsa_cupy.tools"),
    ("mpi4py",): ("bppsa_cupy.distributed.guard",),
}


@pytest.mark.parametrize("packages", IMPORTERS)
def test_only_some_modules_import_optional_packages(packages: tuple[str, ...]) -> None:
    importers = [m for m in trees() if any(name.split(".")[0] in packages for name in imports_of(m))]
    assert all(module.startswith(IMPORTERS[packages]) for module in importers)
