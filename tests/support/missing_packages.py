"""A plugin of pytest for environments without all packages: what needs a missing one is skipped, by its name.

`make lowest` loads it; elsewhere a package that is missing is an error.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Generator
from types import FunctionType, ModuleType
from typing import Any

import pytest


def skip(error: ModuleNotFoundError) -> None:
    """Skip for a package that is missing; raise for a module of ours."""
    if (error.name or "").startswith("bppsa_cupy"):
        raise error
    pytest.skip(f"needs {error.name}", allow_module_level=True)


class _Anything:
    """What modules of tests say with hypothesis as they are loaded; without it, it comes to nothing."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        decorates = len(arguments) == 1 and isinstance(arguments[0], FunctionType) and not options
        return arguments[0] if decorates else self

    def __getattr__(self, name: str) -> Any:
        return self

    __or__ = __call__


def _given(*arguments: Any, **options: Any) -> Any:
    return pytest.mark.skip(reason="needs hypothesis")


def _said(name: str) -> Any:
    """A name of hypothesis's module; names that Python asks a module for are its own."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _given if name == "given" else _Anything()


if importlib.util.find_spec("hypothesis") is None:
    # Tests that draw examples are skipped, and the others of their modules run.
    for name in ("hypothesis", "hypothesis.strategies"):
        sys.modules[name] = module = ModuleType(name)
        module.__getattr__ = _said  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    report = yield
    missing = re.search(
        r"ModuleNotFoundError: No module named '(?!bppsa_cupy)([\w.]+)'", str(report.longrepr)
    )
    if report.failed and missing:
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: needs {missing[1]}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except ModuleNotFoundError as error:
        skip(error)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except ModuleNotFoundError as error:
        skip(error)
