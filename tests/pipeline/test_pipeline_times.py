"""Times of stages: predicted by the cost model, and measured by a trace."""

import math

import numpy as np
import pytest
from marks import some_rows
from pipeline_networks import blocks, data

import bppsa_cupy as bp
from bppsa_cupy.distributed.balance import layer_times
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import Trace
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD, UPDATE, WEIGHTS, Action
from bppsa_cupy.pipeline.times import (
    StageTimes,
    measured_bubbles,
    measured_times,
    message_seconds,
    predicted_times,
)
from bppsa_cupy.plan import cost_model_of
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

FLOAT = np.dtype("float32")


@pytest.mark.parametrize(
    ("model", "ppv"), some_rows(("lenet5", (1, 3)), ("resnet20", (7,)), long=[("vgg16", ())])
)
def test_stages_take_what_their_layers_take(model, ppv):
    net = build_model(model, device="host")
    times = predicted_times(bp.Placement(net, ppv), "host", 8, FLOAT)
    layers = layer_times(net.architecture, "host", 8)
    assert sum(times.forward) == pytest.approx(sum(layers.forward))
    assert sum(times.sent) == pytest.approx(sum(layers.vjp))
    assert sum(times.backward) == pytest.approx(sum(layers.vjp) + sum(layers.gradients))
    assert times.stages == len(ppv) + 1 and min(times.update) > 0


def test_a_cut_block_takes_about_what_the_whole_takes():
    net = build_model("resnet20", device="host")
    whole, cut = (predicted_times(bp.Placement(net, ppv), "host", 8, FLOAT) for ppv in ((), (6, 8, 14)))
    # The calls of Python are counted by layer where a block is open.
    assert sum(cut.by_stage()) == pytest.approx(sum(whole.by_stage()), rel=0.05)


def test_a_message_holds_the_boundarys_arrays():
    placement = bp.Placement(blocks(), (2,))  # inside of a block, whose input is carried along
    link, sizes = cost_model_of("host").link, [math.prod(shape) for shape in placement.boundaries[1].shapes]
    assert len(sizes) == 2
    (found,) = message_seconds(placement, "host", 5, FLOAT)
    assert found == pytest.approx(link.latency + 4 * 5 * sum(sizes) / link.bytes_per_second)


def trace_of(durations, micro=1):
    """Two stages, one batch after another; what a stage waits for is no work."""
    trace, now = Trace(), 0.0
    for batch, (forward, backward) in enumerate(durations):
        for kind, seconds in ((FORWARD, forward), (BACKWARD, backward), (UPDATE, 0.5)):
            for rank in (0, 1):
                for part in range(1 if kind == UPDATE else micro):
                    trace.add(
                        Action(0, rank, kind, rank, batch, part), now, now + 1, now + 1 + (rank + 1) * seconds
                    )
                    now += 1 + (rank + 1) * seconds
    return trace


def test_times_and_bubbles_of_a_trace():
    events = trace_of([(1.0, 3.0), (2.0, 4.0), (9.0, 5.0)]).events()
    assert measured_times(events, 2) == StageTimes((2.0, 4.0), (4.0, 8.0), (0.5, 1.0), (4.0, 8.0))
    # Work of 1.5 + 12 + 12, twice on rank 1; each of 18 actions waits for a second.
    whole = 3 * (1.5 + 12 + 12) + 18
    assert measured_bubbles(events) == pytest.approx({0: 1 - 25.5 / whole, 1: 1 - 51 / whole})
    assert measured_bubbles([]) == {}
    halves = measured_times(trace_of([(1.0, 3.0)], micro=2).events(), 2)
    assert halves == StageTimes((2.0, 4.0), (6.0, 12.0), (0.5, 1.0), (6.0, 12.0))
    for stages in (1, 3):
        with pytest.raises(bp.BppsaError, match=f"the trace has 2 stages.*the pipeline has {stages}"):
            measured_times(events, stages)
    with pytest.raises(bp.BppsaError, match="0 stages, without forward of stage 0"):
        measured_times([], 1)


@pytest.mark.filterwarnings("ignore:.* with BatchNorm")
@pytest.mark.parametrize(("schedule", "micro"), [("stale", 1), ("1f1b", 3), ("zb-h1", 3)])
def test_times_of_training(schedule, micro):
    net, trace = blocks(), Trace()
    pipeline = bp.Pipeline(net, (3,), schedule, micro_batches=micro, trace=trace)
    train(pipeline, data(24, (1, 6, 6)), bp.SGD(net.parameters, lr=0.01), Settings(batch_size=6, epochs=1))
    times, (bubble,) = measured_times(trace.events(), 2), [measured_bubbles(trace.events())]
    back = (BACKWARD, WEIGHTS) if schedule == "zb-h1" else (BACKWARD,)
    sums = {"forward": (FORWARD,), "backward": back, "sent": (BACKWARD,), "update": (UPDATE,)}
    for name, kinds in sums.items():
        for stage in (0, 1):
            own = [
                [end - ready for a, _, ready, end in trace.rows if (a.kind, a.stage) == (kind, stage)]
                for kind in kinds
            ]
            expected = sum(map(np.median, own)) * (1 if name == "update" else micro)
            assert getattr(times, name)[stage] == pytest.approx(expected, rel=1e-3)
    # One process acts for both ranks, so that one of them is idle at any time.
    assert sum(1 - share for share in bubble.values()) <= 1 + 1e-6


def test_scaled_times():
    times = StageTimes((4.0,), (8.0,), (1.0,), (6.0,))
    assert times.scaled(0.25) == StageTimes((1.0,), (2.0,), (1.0,), (1.5,))
    assert times.scaled(0.25).by_stage(4) == times.by_stage() == (13.0,)
