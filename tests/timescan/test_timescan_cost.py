"""The cost model of time scans: what it chooses, on which device, and that it says why."""

from __future__ import annotations

import pytest
from timescan_cases import CELLS

from bppsa_cupy.processors.models import MODELS
from bppsa_cupy.timescan import WalkSize, cost

CUDA, HOST = MODELS["cuda"], MODELS["host"]


def sized(cell, steps, batch, hidden):
    return WalkSize(CELLS[cell], steps, batch, hidden, itemsize=4)


def choose(model, cell, steps, batch, hidden, **how):
    return cost.choose(model, sized(cell, steps, batch, hidden), **how)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("steps, batch, hidden", [(1, 1, 1), (1000, 16, 20), (30000, 1, 20), (10**6, 16, 2)])
def test_the_host_goes_serially(cell, steps, batch, hidden):
    choice = choose(HOST, cell, steps, batch, hidden)
    assert choice.method == "serial" and choice.chunks == 1 and choice.chunk == steps
    assert str(choice).startswith("serial (")


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("steps, batch", [(2000, 16), (30000, 16), (10**6, 4)])
def test_long_sequences_of_small_states_go_by_chunks_on_cuda(cell, steps, batch):
    choice = choose(CUDA, cell, steps, batch, 20)
    assert choice.method == "chunked" and choice.seconds < choice.serial_seconds
    assert choice.chunks == -(-steps // choice.chunk)
    assert f"{choice.chunks} chunks of {choice.chunk}" in str(choice) and "ms serially" in str(choice)
    assert "the quickest predicted on cuda, uncalibrated" in str(choice)


@pytest.mark.parametrize("steps, batch, hidden", [(10, 16, 20), (30000, 16, 128), (1000, 256, 100)])
def test_short_sequences_and_large_states_go_serially_on_cuda(steps, batch, hidden):
    choice = choose(CUDA, "tanh", steps, batch, hidden)
    assert choice.method == "serial" and choice.reason.startswith("predicted")
    assert choice.reason.endswith("on cuda, uncalibrated")


def test_an_lstm_switches_to_the_linear_pass_before_a_gru():
    def largest(cell):
        """As far as a walk's threads hold weights."""
        return max(h for h in range(1, 65) if choose(CUDA, cell, 30000, 16, h).method == "chunked")

    assert largest("lstm") < min(largest("gru"), largest("tanh"))


@pytest.mark.parametrize("cell", ["tanh", "relu", "gru"])
def test_heads_go_by_chunks_on_cuda_where_dense_layers_do_not(cell):
    dense = WalkSize(CELLS[cell], 30000, 1, 1024, itemsize=4)
    heads = WalkSize(CELLS[cell], 30000, 1, 1024, itemsize=4, heads=1024 // 16)
    assert cost.choose(CUDA, dense).method == "serial"
    choice = cost.choose(CUDA, heads)
    assert (
        choice.method == "chunked" and heads.chunk_bytes(choice.chunk) < dense.chunk_bytes(choice.chunk) / 32
    )


def test_states_beyond_the_kernels_go_serially_whatever_is_asked_for():
    choice = choose(CUDA, "tanh", 1000, 1, 449, method="chunked")
    assert choice.method == "serial" and "448" in choice.reason
    assert choose(CUDA, "tanh", 1000, 1, 448, method="chunked").method == "chunked"


def test_the_chosen_length_is_the_quickest_predicted():
    choice = choose(CUDA, "tanh", 30000, 16, 20)
    for chunk in (choice.chunk // 2, choice.chunk * 2, 10, 1000):
        assert cost.chunked_seconds(CUDA, sized("tanh", 30000, 16, 20), chunk) >= choice.seconds


def test_chunk_lengths_that_do_not_fit_the_memory_are_left_out():
    free = choose(CUDA, "tanh", 30000, 16, 20)
    tight = choose(CUDA, "tanh", 30000, 16, 20, free=2**20)
    size = sized("tanh", 30000, 16, 20)
    assert size.chunk_bytes(tight.chunk) <= 2**20 and tight.chunk > free.chunk
    shortest = size.fitting_chunk(2**20)
    assert size.chunk_bytes(shortest) <= 2**20 < size.chunk_bytes(shortest - 1)
    assert size.fitting_chunk(100) is None


def test_what_is_asked_for_is_done():
    assert choose(CUDA, "gru", 1000, 16, 20, method="serial").reason == "as asked for"
    assert choose(HOST, "gru", 1000, 16, 20, method="chunked").method == "chunked"
    assert choose(HOST, "gru", 1000, 16, 20, method="chunked", chunk=7).chunks == 143
    assert choose(CUDA, "gru", 1000, 16, 20, chunk=1000).method == "serial"
