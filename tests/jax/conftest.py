"""What JAX has compiled for a file's tests goes with them: a worker would keep 700 MB of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def compiled_programs() -> Iterator[None]:
    yield
    jax = pytest.importorskip("jax")
    jax.clear_caches()
    gc.collect()
