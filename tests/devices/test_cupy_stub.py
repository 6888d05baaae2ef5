"""The stand-in for CuPy offers nothing that the installed CuPy lacks, and takes what that one takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cupy_stub import make_cupy
from signatures import parameters_of

#: What the stand-in's classes have for the tests alone.
OWN = frozenset(
    {
        "current",
        "architecture",
        "capture",
        "add",
        "time",
        "compiled",
        "HEADER",
        "made",
        "go_on",
        "recorded",
        "is_done",
        # The installed CuPy finds no cuBLAS where there is no GPU.
        "cublas",
    }
)


@pytest.fixture(scope="module")
def cupy() -> ModuleType:
    return pytest.importorskip("cupy")


def offered(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Everything public below a value of the stand-in, by its path of names."""
    nested = isinstance(value, ModuleType | SimpleNamespace) or inspect.isclass(value)
    for name, one in vars(value).items() if nested else ():
        if name.startswith("_") or name in OWN:
            continue
        yield (*path, name), one
        yield from offered(one, (*path, name))


def installed() -> str:
    """The installed CuPy's version."""
    try:
        return version("cupy-cuda12x")
    except PackageNotFoundError:
        return "99.0"


OFFERED = dict(offered(make_cupy(version=installed())))


@pytest.mark.parametrize("path", OFFERED, ids=".".join)
def test_the_installed_cupy_has_it(path: tuple[str, ...], cupy: ModuleType) -> None:
    assert reduce(getattr, path, cupy) is not None


@pytest.mark.parametrize("path", [path for path, one in OFFERED.items() if callable(one)], ids=".".join)
def test_the_installed_cupy_takes_as_many_arguments_and_its_keywords(
    path: tuple[str, ...], cupy: ModuleType
) -> None:
    ours, theirs = parameters_of(OFFERED[path]), parameters_of(reduce(getattr, path, cupy))
    if ours is None or theirs is None:
        return
    if any(one.kind is one.VAR_KEYWORD for one in theirs.values()):
        return
    by_name = {name for name, one in ours.items() if one.kind is one.KEYWORD_ONLY}
    assert by_name <= theirs.keys()
    if not any(one.kind is one.VAR_POSITIONAL for one in (*ours.values(), *theirs.values())):
        assert len(ours) <= len(theirs)
