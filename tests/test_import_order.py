"""Imports run one way: a module imports only from its own layer and the ones before it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: Layers in order; a module belongs to the longest prefix that fits.
LAYERS = [
    ["bppsa_cupy.errors", "bppsa_cupy.csr", "bppsa_cupy.geometry", "bppsa_cupy.system"],
    ["bppsa_cupy.raw_kernels"],
    ["bppsa_cupy.devices"],
    ["bppsa_cupy.timescan"],
    ["bppsa_cupy.jacobians", "bppsa_cupy.records"],
    ["bppsa_cupy.layers"],
    ["bppsa_cupy.plan"],
    ["bppsa_cupy.scan"],
    ["bppsa_cupy.network"],
    ["bppsa_cupy.distributed"],
    ["bppsa_cupy.models", "bppsa_cupy.data"],
    ["bppsa_cupy.training"],
    ["bppsa_cupy"],
    ["bppsa_cupy.tools"],
]
FOLDERS = {"bppsa_cupy": "bppsa_cupy", "jacobians": "bppsa_cupy.jacobians",
           "raw_kernels": "bppsa_cupy.raw_kernels", "tools": "bppsa_cupy.tools"}  # fmt: skip


def layer_of(module):
    fits = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if module == prefix or (module.startswith(prefix + ".") and prefix != "bppsa_cupy")
    ]
    assert fits, f"{module} belongs to no layer: add it to LAYERS"
    return max(fits)[1]


def modules():
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield path, ".".join([package, *(part for part in parts if part != "__init__")])


def imported(path):
    """Modules of this project that run when `path` is imported (imports for type checkers are not)."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bppsa_cupy"):
            for alias in node.names:
                nested = ROOT / Path(*node.module.split("."), alias.name)
                yield f"{node.module}.{alias.name}" if nested.is_dir() else node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("bppsa_cupy"))


def test_imports_run_one_way():
    wrong = [
        f"{module} imports {other}"
        for path, module in modules()
        for other in imported(path)
        if layer_of(other) > layer_of(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_planning_imports_no_device():
    planning = [(path, module) for path, module in modules() if module.startswith("bppsa_cupy.plan")]
    assert len(planning) > 5
    wrong = [
        f"{module} imports {other}"
        for path, module in planning
        for other in imported(path)
        if other.startswith(("bppsa_cupy.devices", "bppsa_cupy.layers", "bppsa_cupy.jacobians"))
    ]
    assert not wrong, "\n".join(wrong)


def importers(*packages):
    """Modules of this project that import one of `packages`, at whatever place in their text."""
    return {
        module
        for path, module in modules()
        if any(
            name.split(".")[0] in packages
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        )
    }


def test_only_the_cuda_device_imports_cupy():
    assert importers("cupy", "cupyx") == {"bppsa_cupy.devices.cuda"}


def test_only_the_group_imports_mpi4py():
    assert importers("mpi4py") == {"bppsa_cupy.distributed.group"}
