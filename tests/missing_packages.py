"""A plugin of pytest for environments without all packages: what needs a missing one is skipped, by its name.

`make lowest` loads it; elsewhere a package that is missing is an error.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest


def skip(error: ModuleNotFoundError) -> None:
    """Skip for a package that is missing; raise for a module of ours."""
    if (error.name or "").startswith("bppsa_cupy"):
        raise error
    pytest.skip(f"needs {error.name}", allow_module_level=True)


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
