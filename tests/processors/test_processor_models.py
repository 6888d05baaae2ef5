"""The time model of a GPU: within reach of what the committed tables of machine code say."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.processors.models import H200, model_of
from bppsa_cupy.processors.warps import Warps, reducing, stepping, walking
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.clusters import alone_cycles, sums_of
from bppsa_cupy.raw_kernels.frames.kernels import MANY, backward_products, forward_products
from bppsa_cupy.raw_kernels.frames.places import warp_cycles
from bppsa_cupy.raw_kernels.frames.steps import backward_shares, forward_shares
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import layout_for
from bppsa_cupy.timescan import Walk, WalkSize, cost
from bppsa_cupy.timescan.forward import EXPECTED_ITERATIONS, choose_forward
from bppsa_cupy.timescan.newton import NewtonForward
from bppsa_cupy.tools.instruments.launches.paper import PaperGpu
from bppsa_cupy.tools.instruments.machine_code.cases import WIDE_CELLS, WIDTHS
from bppsa_cupy.tools.instruments.machine_code.predictions import PREDICTED

pytestmark = pytest.mark.long

FILE = Path(__file__).parents[2] / "docs" / "results" / "machine-code.json"
#: By how much a fit may be off, as a factor.
OFF = 1.35
#: Without tanh or sigmoid a step forward is as much shorter.
NO_FUNCTION = 1.8


@cache
def table() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def size(cell: str, hidden: int = 20, steps: int = 30000, batch: int = 16) -> WalkSize:
    return WalkSize(FORMS[cell], steps, batch, hidden, itemsize=4)


def assert_near(warps: Warps, row: dict[str, Any], rounds: float = 1.0) -> None:
    """`rounds`: how often the model goes through the loop that the table has once."""
    off = NO_FUNCTION if row["kernel"] == "rnn_relu_forward" else OFF
    for name, ours, counted in (
        ("cycles", warps.cycles / rounds, row["cycles"]["L2"]),
        ("instructions", warps.instructions / rounds, row["instructions"]),
        ("registers", warps.registers, row["registers"]),
    ):
        assert counted / OFF <= ours <= counted * off, (row["kernel"], row["hidden"], name, ours, counted)


@pytest.mark.parametrize("cell", FORMS)
def test_steps_take_what_the_tables_say(cell: str) -> None:
    rows = {row["kernel"]: row for row in table()["rows"] if row["target"] == "sm_90"}
    for verb in ("forward", "backward"):
        assert_near(walking(size(cell), verb, 1, H200.shared_bytes), rows[f"{cell}_{verb}"])
    assert_near(reducing(size(cell), 71, H200.shared_bytes), rows[f"{cell}_reduce"])


@pytest.mark.parametrize("cell", WIDE_CELLS)
def test_wider_walks_take_what_the_tables_say(cell: str) -> None:
    rows = [row for row in table()["widths"] if row["kernel"].rpartition("_")[0] == cell]
    assert {row["hidden"] for row in rows} == set(WIDTHS)
    for row in rows:
        if row["kernel"].endswith("_reduce"):
            continue
        hidden, verb = row["hidden"], row["kernel"].rpartition("_")[2]
        warps = walking(size(cell, hidden), verb, 1, H200.shared_bytes)
        rounds = hidden * FORMS[cell].gates / 256
        if warps.kind.endswith("by blocks"):
            layout = layout_for(kernels_of(FORMS[cell])[verb].layouts("float32", H200.shared_bytes), hidden)
            products = forward_products if verb == "forward" else backward_products
            alone = warp_cycles(layout, products(FORMS[cell]).sums, 4)
            assert alone < warps.cycles < 3 * alone, "other warps share schedulers and shared memory"
            warps = warps._replace(cycles=alone)
        # Beyond what blocks hold the loop's own part is all but the start of a step.
        in_memory = warps.kind.endswith("in memory")
        assert_near(warps, row, max(1.0, 0.8 * rounds) if in_memory else 1.0)


@pytest.mark.parametrize("cell", WIDE_CELLS)
def test_walks_by_clusters_take_what_the_tables_say(cell: str) -> None:
    rows = [row for row in table()["clusters"] if row["kernel"].rpartition("_")[0] == cell]
    assert {row["kernel"].rpartition("_")[2] for row in rows} == {"forward", "backward"}
    for row in rows:
        verb = row["kernel"].rpartition("_")[2]
        layout = H200.cluster_layout(size(cell, row["hidden"]), verb)
        assert layout is not None and not row["spill_bytes"]
        found = alone_cycles(layout, sums_of(FORMS[cell], verb), 4)
        assert found == pytest.approx(row["cycles"]["L2"], rel=OFF - 1), row


@pytest.mark.parametrize("cell", WIDE_CELLS)
def test_a_unit_of_a_reduction_in_blocks_takes_what_the_tables_say(cell: str) -> None:
    rows = [row for row in table()["widths"] if row["kernel"] == f"{cell}_reduce"]
    assert {row["hidden"] for row in rows} == set(WIDTHS)
    few, more = (reducing(size(cell, hidden), 71, H200.shared_bytes) for hidden in (64, 128))
    each = [(b - a) / 64 for a, b in zip(few[1:3], more[1:3], strict=True)]
    for row in rows:
        assert_near(Warps(1, *each, few.registers, few.kind), row)


@pytest.mark.parametrize("cell", FORMS)
@pytest.mark.parametrize("verb", ["forward", "backward"])
def test_passes_take_what_the_page_predicts(cell: str, verb: str) -> None:
    """T = 30000, B = 16, H = 20: serially, and by as many chunks as are the quickest."""
    predicted: dict[str, float] = defaultdict(float)
    for part in table()["predictions"]:
        if part["cell"] == cell and part["way"].startswith(f"{verb}, "):
            predicted["serial" if "serial" in part["way"] else "chunks"] += part["seconds"]
    off = NO_FUNCTION if (cell, verb) == ("rnn_relu", "forward") else OFF
    serial = H200.walk_seconds(size(cell), verb, 1)
    assert predicted["serial"] / OFF <= serial <= predicted["serial"] * off
    choice = cost.choose(H200, size(cell), method="chunked", verb=verb)
    chunks = choice.seconds
    if verb == "forward":
        chunks = cost.newton_seconds(H200, size(cell), choice.chunk, EXPECTED_ITERATIONS)
    assert predicted["chunks"] / OFF <= chunks <= predicted["chunks"] * OFF


@pytest.mark.parametrize("verb, chunks", [("forward", 1), ("backward", 1), ("backward", 4)])
def test_walks_share_what_they_load_from_as_many_on_as_the_kernel_has_it(verb: str, chunks: int) -> None:
    """A block takes four samples then, so that there are fewer blocks, each of twice the instructions."""
    few, many = (
        walking(size("gru", 300, steps=8, batch=batch), verb, chunks, H200.shared_bytes)
        for batch in (MANY // chunks - 1, MANY // chunks)
    )
    assert many.number < few.number / 3 and many.instructions == 2 * few.instructions


def test_more_warps_than_schedulers_share_them() -> None:
    one, few = (Warps(number, 100, 30, 64, "forward") for number in (1, 132 * 4))
    assert H200.step_seconds(one) == H200.step_seconds(few) == 100 / H200.alone
    assert H200.step_seconds(few._replace(number=2 * few.number)) == 100 / H200.busy, "waits are hidden"
    assert H200.step_seconds(few._replace(number=5 * few.number)) == 150 / H200.busy, "by issue"
    wide = few._replace(number=5 * few.number, registers=250)
    assert H200.step_seconds(wide) == 300 / H200.busy, "two warps at once, so three waves"


@pytest.mark.parametrize("cell", WIDE_CELLS)
@pytest.mark.parametrize("verb", ["forward", "backward"])
def test_a_weight_of_a_single_step_takes_what_the_table_says(cell: str, verb: str) -> None:
    row = next(r for r in table()["rows"] if (r["kernel"], r["target"]) == (f"{cell}_{verb}_step", PREDICTED))
    shares = (forward_shares if verb == "forward" else backward_shares)(FORMS[cell])
    rows = shares.units * (FORMS[cell].gates if verb == "forward" else 1)
    wide, wider = (stepping(size(cell, hidden), verb)[0] for hidden in (32, 64))
    # 32 terms more are one of each row of a lane, beside what the copies of their vectors take.
    copied = 12 * shares.parts * shares.samples * shares.tiles / shares.warps
    cycles, issued = ((b - a - copied) / rows for a, b in zip(wide[1:3], wider[1:3], strict=True))
    assert cycles == pytest.approx(row["cycles"]["L2"], rel=OFF - 1)
    assert issued == pytest.approx(row["instructions"], rel=OFF - 1)
    assert row["registers"] <= wide.registers * 1.1 and not row["spill_bytes"]


@pytest.mark.parametrize("steps, newton", [(60000, True), (30000, False), (10, False)])
def test_forward_is_chosen_by_the_model_which_says_that_it_is_uncalibrated(steps: int, newton: bool) -> None:
    chunk, reason = choose_forward(PaperGpu(), size("rnn_tanh", steps=steps), "auto")
    assert bool(chunk) == newton and reason.endswith("on cuda, uncalibrated")
    predicted = H200.walk_seconds(size("rnn_tanh", steps=steps), "forward", 1)
    assert f"{predicted * 1e3:.3g} ms" in reason


def test_a_device_has_its_own_workers() -> None:
    host = HostDevice()
    assert model_of(host).workers == host.workers and model_of(host).label == "host, uncalibrated"


@pytest.mark.parametrize("cell", ["rnn_tanh", "gru"])
def test_newtons_copies_walks_and_waits_are_predicted(cell):
    """The copies are those of a pass on paper, where boundaries have settled at the first look."""
    walk, gpu = size(cell, steps=3000), PaperGpu()
    rows = walk.cell.gates, walk.cell.states, walk.cell.kept
    projected, state, gates = (gpu.empty((3000, n * walk.hidden, walk.batch), np.float32) for n in rows)
    given = [gpu.empty(shape, np.float32) for shape in (
        (1, rows[0] * walk.hidden, walk.hidden), (1, rows[0] * walk.hidden), (1, 0),
        (walk.state, walk.batch), (walk.state, walk.batch))]  # fmt: skip
    lengths = gpu.empty(walk.batch, np.int64)
    one = Walk(walk, False, *given[:3], lengths, given[3], projected, state, gates, given[4])
    newton = NewtonForward(gpu, one, 50)
    newton()
    gpu.log.taken()
    gpu.log.waits = 0
    newton()
    done = gpu.log.taken()
    copied = sum(o.read + o.written for o in done if o.graph is None and o.name in ("cupy copy", "cupy fill"))
    assert newton.report.iterations == 1 and copied == pytest.approx(walk.newton_copied, rel=0.05)
    assert gpu.log.waits == 2  # of the iteration, and of the settling
    predicted = [cost.newton_seconds(H200, walk, 50, iterations) for iterations in (0, 6)]
    assert predicted[1] - predicted[0] == pytest.approx(6 * cost.chunked_seconds(H200, walk, 50, "forward"))
    least = walk.newton_copied / H200.memory + len(done) * H200.launch
    assert least < predicted[0] + cost.chunked_seconds(H200, walk, 50, "forward") < 5 * least
