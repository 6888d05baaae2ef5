"""What docs/reliability.md promises of numbers, on small cases; `make numbers` measures the large ones."""

from __future__ import annotations

import re
from pathlib import Path

import numba
import pytest
from measuring import chains, memory, threads
from measuring.errors import BOUNDS, GROWTH, errors

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize("name", BOUNDS)
def test_a_layer_in_float32_stays_within_its_bound(name: str) -> None:
    """Seeds other than those of the measurement."""
    layers, shape, units = BOUNDS[name]
    for seed in (101, 102):
        for what, found, most in zip(units._fields, errors(layers, shape, "auto", seed), units, strict=True):
            assert found <= most, f"{name}, {what}"


def test_the_page_states_the_bounds() -> None:
    rows = dict(re.findall(r"^\| `(.+?)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    stated = {name: tuple(float(cell) for cell in rows[name].split(" | ")[:3]) for name in BOUNDS}
    assert stated == {name: tuple(bound.units) for name, bound in BOUNDS.items()}


@pytest.mark.parametrize("way", ["serial", "chunked"])
def test_errors_of_a_gru_do_not_grow_with_its_length(way: str) -> None:
    make, method, _ = GROWTH[f"GRU, T, {way}"]
    for found in errors(*make(600), method, 7):
        assert found < 60


@pytest.mark.parametrize("network", threads.NETWORKS)
def test_the_number_of_threads_changes_no_bit(network: str) -> None:
    most = numba.config.NUMBA_NUM_THREADS
    if most < 2:
        pytest.skip("Numba has one thread here")
    for method in threads.METHODS:
        found = set()
        for count in (1, most):
            numba.set_num_threads(count)
            try:
                found.add(threads.digest(network, method))
            finally:
                numba.set_num_threads(most)
        assert len(found) == 1, method


def test_training_takes_no_more_memory_with_every_step() -> None:
    """Pages that the first steps of a process touch for the first time aside: 1 MiB in 200 steps."""
    resident = memory.train((100, 300))
    assert resident[-1] - resident[0] < 2**20


@pytest.mark.parametrize(
    "forward, method", [("serial", "linear"), ("serial", "blelloch"), ("newton", "blelloch")]
)
def test_gradients_through_an_rnn_of_spectral_radius_1_5(forward: str, method: str) -> None:
    exact = chains.through_time(3000, "serial", "linear", "float64")
    for found, wanted in zip(chains.through_time(3000, forward, method, "float32"), exact, strict=True):
        assert chains.error_of(found, wanted) < 100


def test_a_chain_of_matrices_that_expand() -> None:
    """What the serial scan has finite, the parallel one has too."""
    serial, parallel = (chains.of_matrices(150, method) for method in ("linear", "blelloch"))
    assert chains.first_not_finite(serial) is chains.first_not_finite(parallel) is None
    assert chains.agreement(parallel, serial) < 100
