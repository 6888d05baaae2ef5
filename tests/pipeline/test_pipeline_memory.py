"""What stages of a pipeline hold: accounted bytes are those of the arrays there are."""

import warnings
from dataclasses import replace
from functools import cache

import layer_cases
import numpy as np
import pytest
from marks import some_rows
from pipeline_networks import blocks, data

import bppsa_cupy as bp
from bppsa_cupy.devices.dry import DryDevice
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import execution
from bppsa_cupy.pipeline.memory import pass_bytes, stage_memory
from bppsa_cupy.pipeline.schedules import SCHEDULES
from bppsa_cupy.pipeline.stage import Stage
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

FLOAT = np.dtype("float32")


@cache
def network(model):
    return build_model(model, device="host")


def trained(net, ppv, schedule, batch=4, batches=8, shape=(3, 32, 32), **options):
    """A pipeline that was full once, with its optimizer."""
    pipeline = bp.Pipeline(net, ppv, schedule, **options)
    optimizer = bp.SGD(net.parameters, lr=1e-5, momentum=0.9)
    dataset = data(batch * batches, shape, net.output_shape[0])
    train(pipeline, dataset, optimizer, Settings(batch_size=batch, epochs=1))
    return pipeline, optimizer


def micro_of(schedule):
    return {"micro_batches": 2} if SCHEDULES[schedule].micro else {}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("model", "ppv", "batch"),
    some_rows(("lenet5", (1, 2, 4), 4), ("resnet20", (3, 8), 2), long=[("vgg16", (4,), 2)]),
)
def test_measured_bytes_are_those_that_were_accounted(model, ppv, batch, schedule):
    net = network(model)
    batches = 2 * len(ppv) + 1 if SCHEDULES[schedule].stale or SCHEDULES[schedule].stashes else 1
    micro = micro_of(schedule)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* with BatchNorm")
        pipeline, optimizer = trained(net, ppv, schedule, batch, batches, **micro)
    accounted = stage_memory(
        pipeline.placement, schedule, batch, net.dtype, micro=micro.get("micro_batches", 1), over_ranks=False
    )
    measured = pipeline.memory(optimizer)
    assert sorted(measured) == list(range(len(accounted)))
    for stage, own in enumerate(accounted):
        # What was handed on is gone when the pipeline is empty.
        assert replace(measured[stage], received=own.received) == own
    assert sum(own.weights for own in accounted) == net.parameters.flat.nbytes
    assert sum(own.optimizer for own in accounted) == sum(a.nbytes for a in optimizer.arrays.values())
    assert sum(own.buffers for own in accounted) == sum(array.nbytes for array in net.buffers.values())


def test_arrays_alive_in_a_full_pipeline(monkeypatch):
    """Every array that a pass, a link or the loss refers to, each base once, behind any pass, as updates
    keep none."""
    most, original = [0], execution._Run.pass_through

    def pass_through(run, action):
        original(run, action)
        parts, alive = run._parts.values(), run._alive.values()
        arrays = [array for part in parts for own in part.free for array in own.kept()]
        for one in alive:
            arrays += [*one.current.kept(), *one.given]
            arrays += [] if one.current.gradient is None else [one.current.gradient]
        arrays += [array for parcel in run._links._parcels.values() for array in parcel]
        arrays += [array for part in parts for array in part.stage.scratch_arrays()]
        bases = {}
        for array in arrays:
            while array.base is not None:
                array = array.base
            bases[id(array)] = array.nbytes
        most[0] = max(most[0], sum(bases.values()))

    monkeypatch.setattr(execution._Run, "pass_through", pass_through)
    net = blocks()
    pipeline, _ = trained(net, (1, 2, 4), "stale", 5, 9, (1, 6, 6))
    accounted = stage_memory(pipeline.placement, "stale", 5, net.dtype, over_ranks=False)
    assert most[0] == sum(own.activations + own.received + own.scratch for own in accounted)


@pytest.mark.parametrize(
    ("model", "ppv"), some_rows(("resnet20", (7, 13, 19)), long=[("vgg16", (2, 4, 7, 10))])
)
@pytest.mark.parametrize("over_ranks", [False, True])
def test_pipedream_holds_what_stale_1f1b_does_and_copies_of_weights(model, ppv, over_ranks):
    net = network(model)
    placement, K = bp.Placement(net, ppv), len(ppv)
    stashing, stale = (
        stage_memory(placement, name, 16, FLOAT, over_ranks=over_ranks)
        for name in ("pipedream", "stale-1f1b")
    )
    for i, (one, other) in enumerate(zip(stashing, stale, strict=True), 1):
        part = net.parameters.flat[net.parameters.part_of(placement.parameter_names[i - 1])]
        assert one.total == other.total + (K - i + 1) * part.nbytes


def test_passes_alive_and_predictions():
    placement = bp.Placement(blocks(), (1, 2, 4))
    by_name = {
        name: stage_memory(placement, name, 6, FLOAT, micro=2 if kind.micro else 1)
        for name, kind in SCHEDULES.items()
    }
    for stage in range(4):
        own = {name: memory[stage] for name, memory in by_name.items()}
        one = own["none"].activations
        behind = 3 - stage
        assert own["stale"].activations == (2 * behind + 1) * one
        assert own["stale-1f1b"].activations == (behind + 1) * one == own["pipedream"].activations
        if stage != 1:  # where the body of a block has statistics, which no smaller batch makes smaller
            assert own["gpipe"].activations == one
        assert own["gpipe"].sums == own["gpipe"].weights and own["stale"].sums == 0
        predicted = stage_memory(placement, "stale", 6, FLOAT, predict=True)[stage]
        assert predicted.copies == (2 * predicted.weights if behind else 0)
        assert predicted.total - predicted.copies == own["stale"].total


@pytest.mark.parametrize("case", layer_cases.CASES, ids=lambda case: case.name)
def test_a_pass_that_computes_nothing_takes_the_same_arrays(case):
    net = bp.Sequential([case.make()], case.input_shape, dtype="float64", device="host")
    placement = bp.Placement(net, ())
    arrays = net.parameters, net.gradients, net.parameters.masks, net.buffers
    stage = Stage(placement, 0, net.device, net.dtype, *arrays)
    current = stage.new_pass()
    (made,) = stage.forward(current, (np.ones((3, *case.input_shape)),))
    stage.backward(current, (np.ones(made.shape),), lambda parcel: None)
    expected = sum(a.nbytes for a in current.kept()), sum(a.nbytes for a in stage.scratch_arrays())
    assert pass_bytes(placement, 0, 3, net.dtype, "host") == expected


def test_arrays_of_a_dry_device_take_no_memory():
    device = DryDevice("host")
    array = device.empty((1 << 20, 1 << 20), "float64")
    assert array.shape == (1 << 20, 1 << 20) and array.nbytes == 1 << 43
    flat = device.empty(1 << 40, "float32")
    assert device.xp.exp(flat, out=flat) is flat
    assert device.xp.float32 is np.float32 and device.xp.exp(np.zeros(2)).tolist() == [1, 1]
    assert device.name == "host" and flat[: 1 << 30].reshape(1 << 10, -1).shape == (1 << 10, 1 << 20)


def test_too_little_memory_is_told_before_the_first_batch(monkeypatch):
    net = blocks()
    pipeline = bp.Pipeline(net, (1, 2), "stale")
    optimizer = bp.SGD(net.parameters, lr=0.1)
    settings = Settings(batch_size=4, epochs=1)
    needed = stage_memory(pipeline.placement, "stale", 4, net.dtype, over_ranks=False)
    every = sum(own.of_passes for own in needed)
    assert every < sum(own.total for own in needed)
    before = net.parameters.flat.copy()
    monkeypatch.setattr(net.device, "free_memory", lambda: every - 1)
    text = rf"take {every} more bytes \(stage 0 {needed[0].of_passes}, .*\), {every - 1} are free"
    with pytest.raises(bp.DeviceError, match=text):
        train(pipeline, data(40, (1, 6, 6)), optimizer, settings)
    np.testing.assert_array_equal(net.parameters.flat, before)
    monkeypatch.setattr(net.device, "free_memory", lambda: every)
    train(pipeline, data(40, (1, 6, 6)), optimizer, settings)
    # The arrays are there now, but for what the stages hand to each other.
    received = sum(own.received for own in needed)
    monkeypatch.setattr(net.device, "free_memory", lambda: received)
    pipeline.check(optimizer, settings, 4)
    with pytest.raises(bp.DeviceError, match="more bytes"):
        pipeline.check(optimizer, settings, 5)
