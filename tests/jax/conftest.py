"""JAX compiles without most optimizations, which take long. What it compiled for a file goes with its tests:
a worker would keep 700 MB of it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


@pytest.fixture(autouse=True, scope="module")
def compiled_programs() -> Iterator[None]:
    yield
    jax = pytest.importorskip("jax")
    jax.clear_caches()
    gc.collect()
