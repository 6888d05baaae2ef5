"""Which way over time is taken, by processors whose parts take given seconds."""

from dataclasses import dataclass, replace

import pytest
from timescan_cases import CELLS

from bppsa_cupy.devices import get_device
from bppsa_cupy.processors import models
from bppsa_cupy.processors.models import H200, MODELS, HostModel, Processor
from bppsa_cupy.processors.warps import shared_by_chunks
from bppsa_cupy.raw_kernels.frames.steps import MOST_GATES
from bppsa_cupy.timescan import WalkSize, cost, forward

HOST = get_device("host")
SIZE = WalkSize(CELLS["gru"], 60, 4, 3, itemsize=4)


@dataclass(frozen=True)
class Given(Processor):
    """Each part takes what is given; a walk by chunks `walk`, a serial one `serial`."""

    listed: tuple[float, float] = (1.0, 1.0)
    serial: float = 0.0
    walk: float = 0.0
    reduce: float = 0.0
    scan: float = 0.0

    def walk_seconds(self, size, verb, chunks):
        return self.serial if chunks == 1 else self.walk

    def reduce_seconds(self, size, chunk, first=1):
        return self.reduce

    def scan_seconds(self, size, chunks):
        return self.scan


def test_chunks_take_the_sum_of_their_parts():
    model = Given("given", 1, launch=1.0, check=10.0, walk=100.0, reduce=1000.0, scan=1e4)
    assert cost.chunked_seconds(model, SIZE, 5) == 11104  # the fourth launch is of the walk held ready
    assert cost.chunked_seconds(model, SIZE, 5, "forward") == 11113
    assert cost.newton_seconds(model, SIZE, 5, 2) == 2 * 11113 + 2 * (100 + 6 + 10) + 12


def test_the_serial_pass_is_taken_where_chunks_are_not_quicker():
    model = Given("given", 1, 0.0, 0.0, serial=1.0, walk=1.0)
    assert cost.choose(model, SIZE).method == "serial"
    chosen = cost.choose(replace(model, walk=0.5), SIZE)
    assert chosen.method == "chunked" and chosen.reason == "the quickest predicted on given, uncalibrated"
    assert cost.choose(model, SIZE, method="chunked").reason == "as asked for"


def test_two_steps_are_two_chunks_and_one_is_serial():
    model = Given("given", 1, 0.0, 0.0, serial=1.0)
    two = cost.choose(model, replace(SIZE, steps=2))
    assert (two.method, two.chunk, two.chunks) == ("chunked", 1, 2)
    assert cost.choose(model, replace(SIZE, steps=1), method="chunked").reason == "one chunk"
    assert cost.choose(model, SIZE, chunk=60).reason == "one chunk"


def test_the_longest_chunks_are_taken_where_none_fits():
    lengths = list(SIZE.chunk_lengths())
    model = Given("given", 1, 0.0, 0.0, serial=1.0)
    assert lengths[-1] == max(lengths) == 30 and lengths[0] == 1
    assert cost.choose(model, SIZE, free=0).chunk == 30
    assert cost.choose(model, SIZE, free=SIZE.chunk_bytes(30)).chunk == 30
    assert cost.choose(model, SIZE, free=SIZE.chunk_bytes(20)).chunk == 20


def test_newtons_iteration_is_taken_where_so_many_are_quicker(monkeypatch):
    model = Given("given", 1, 0.0, 0.0, serial=forward.EXPECTED_ITERATIONS * 1.0, walk=1.0)
    monkeypatch.setattr(forward, "model_of", lambda device: model)
    assert forward.choose_forward(HOST, SIZE)[0] == 0
    monkeypatch.setattr(forward, "model_of", lambda device: replace(model, walk=0.5))
    chunk, reason = forward.choose_forward(HOST, SIZE)
    assert chunk and reason == "predicted 4e+03 ms, 6e+03 ms serially on given, uncalibrated"
    assert forward.choose_forward(HOST, SIZE, free=10)[0] == 0
    wide = replace(SIZE, hidden=449)
    assert forward.choose_forward(HOST, wide, "newton") == (0, cost.choose(model, wide).reason)


# ---- processors ----

#: A host of which every part takes a second a multiply-add.
COUNTING = HostModel("one", 1, 0.0, 0.0, (1.0, 1.0), 0.0, 1.0, 1, 1.0, 1.0)


def test_a_hosts_seconds_are_its_multiply_adds():
    """A gate's row by the state; a map's column by each gate's rows, scaled as 8 more; a map a boundary."""
    assert COUNTING.walk_seconds(SIZE, "forward", 1) == 60 * 4 * 3 * 3**2
    assert COUNTING.walk_seconds(replace(SIZE, heads=3), "forward", 1) == 60 * 4 * 3 * 3 * 1**2
    assert COUNTING.reduce_seconds(SIZE, 7) == 7 * (8 * 4) * 3 * 3 * 3 * (3 + 8)
    assert COUNTING.reduce_seconds(SIZE, 60, 0) == 60 * 4 * 3 * 3 * 3 * (3 + 8)
    assert COUNTING.scan_seconds(SIZE, 9) == 8 * 3**2
    assert COUNTING.scan_seconds(replace(SIZE, batch=9), 9) == 2 * 8 * 3**2


def test_a_hosts_workers_lanes_and_rates_share_it():
    model = replace(COUNTING, workers=2, lanes=3, serial_rate=5.0, reduce_rate=7.0, scan_rate=11.0)
    steps = 60 * 27 / 5
    assert model.walk_seconds(SIZE, "forward", 1) == pytest.approx(steps)
    assert model.walk_seconds(replace(SIZE, batch=7), "forward", 1) == pytest.approx(2 * steps)
    timed = replace(model, launch=0.5, serial_step=2.0)
    assert timed.walk_seconds(SIZE, "forward", 1) == pytest.approx(steps + 60 * 2 + 0.5)
    # Of 6 chunks of 10 steps, 12 groups of at most 3 samples on 2 workers.
    assert model.walk_seconds(SIZE, "forward", 6) == pytest.approx(10 * 6 * 27 / 5)
    assert model.reduce_seconds(replace(SIZE, batch=3), 20) == pytest.approx(20 * 27 * 11 / 7)
    assert model.scan_seconds(replace(SIZE, batch=17), 3) == pytest.approx(2 * 2 * 9 / 11)


def test_a_gpus_scan_takes_a_product_in_registers_or_the_reading_of_its_map():
    rate = H200.alone
    assert H200.scan_seconds(replace(SIZE, hidden=10), 3) == pytest.approx(2 * 115 / rate)
    assert H200.scan_seconds(replace(SIZE, hidden=100), 3) == pytest.approx(2 * 2000 / rate)
    walks = 8 * H200.workers
    for batch, rounds in ((walks, 1), (walks + 1, 2)):
        size = replace(SIZE, hidden=10, batch=batch)
        assert H200.scan_seconds(size, 3) == pytest.approx(2 * 115 / rate * rounds)


def test_weights_that_fill_the_cache_are_read_from_it():
    size = replace(SIZE, hidden=1024, batch=1)
    weights = 3 * 1024**2 * 4
    slow = replace(H200, memory=1.0, cache_bytes=weights)
    assert (
        slow.single_step_seconds(size, "forward")
        < 1
        < replace(slow, cache_bytes=weights - 1).single_step_seconds(size, "forward")
    )


def test_cells_of_many_gates_and_empty_batches_do_not_go_by_steps():
    size = replace(SIZE, hidden=1024, batch=1)
    assert H200.goes_by_steps(size, "forward")
    assert not H200.goes_by_steps(replace(size, batch=0), "forward")
    many = replace(size, cell=replace(size.cell, gates=MOST_GATES))
    assert H200.goes_by_steps(many, "forward")
    many = replace(size, cell=replace(size.cell, gates=MOST_GATES + 1))
    assert not H200.goes_by_steps(many, "forward")
    assert not MODELS["host"].goes_by_steps(size, "forward")


def test_blocks_go_through_all_steps_where_launches_are_not_quicker(monkeypatch):
    monkeypatch.setattr(type(H200), "walk_in_blocks_seconds", lambda self, size, verb, chunks=1: 2.0)
    for seconds in (1.0, 2.0, 3.0):
        monkeypatch.setattr(type(H200), "single_step_seconds", lambda self, size, verb, s=seconds: s)
        assert H200.goes_by_steps(SIZE, "forward") == (seconds < 2)


@pytest.mark.parametrize(("verb", "scan"), [("forward", "newton_scan"), ("backward", "chunk_scan")])
def test_kernels_that_take_shared_memory_are_those_of_the_way(verb, scan):
    def kernels(chunk):
        return [name for name, _ in shared_by_chunks(SIZE, verb, chunk, H200.shared_bytes)]

    assert kernels(60) == [f"gru_{verb}"]
    assert kernels(30) == kernels(7) == [f"gru_{verb}", "gru_reduce", scan]


def test_a_block_may_take_all_the_shared_memory_there_is(monkeypatch):
    monkeypatch.setattr(models, "shared_by_chunks", lambda *_: iter([("probe", 4096)]))
    assert replace(H200, shared_bytes=4096).lack(SIZE, "forward", 60) is None
    lack = replace(H200, shared_bytes=4095).lack(SIZE, "forward", 60)
    assert lack == "a block of probe takes 4096 bytes of shared memory, 4095 are there"


@pytest.mark.parametrize("steps", [60, 1])
def test_a_serial_walk_is_one_chunk_to_the_shared_memory(steps, monkeypatch):
    chunks = []
    monkeypatch.setattr(type(H200), "lack", lambda self, size, verb, chunk: chunks.append(chunk))
    H200.goes_by_steps(replace(SIZE, steps=steps), "backward")
    assert chunks == [steps]
