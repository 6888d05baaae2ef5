"""Pipelined training in one process, against a reference that keeps all weights, and plain training."""

import numpy as np
import pipeline_reference as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_networks import blocks, data, mlp
from refusals import assert_refused

import bppsa_cupy as bp
from bppsa_cupy.data.dataset import Dataset, Split
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

ONE_BY_ONE = ("stale", "stale-1f1b", "pipedream")


def fit(net, dataset, pipeline=None, *, momentum=0.9, lr=0.05, **settings):
    """The history of training, with or without a pipeline, and the optimizer."""
    optimizer = bp.SGD(net.parameters, lr=lr, momentum=momentum)
    trained = net if pipeline is None else bp.Pipeline(net, **pipeline)
    settings = {"batch_size": 4, "epochs": 2, "seed": 5, **settings}
    return train(trained, dataset, optimizer, Settings(**settings)), optimizer


def equal(ours, theirs):
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@given(
    st.sampled_from((*ONE_BY_ONE, "none")),
    st.sets(st.integers(1, reference.LAYERS - 1)),
    st.integers(1, 12),
)
def test_values_are_those_of_a_reference_that_keeps_every_version(schedule, cuts, steps):
    net, ppv, dataset = mlp(), sorted(cuts), data(3 * steps)
    given_weights = [(net.parameters[f"{2 * k}.weight"].copy(), net.parameters[f"{2 * k}.bias"].copy())
                     for k in range(reference.LAYERS)]  # fmt: skip
    order = [np.random.default_rng((5, epoch)).permutation(3 * steps) for epoch in range(2)]
    expected, velocity, losses = given_weights, None, []
    for epoch in range(2):  # the pipeline is empty between epochs
        rows = [order[epoch][3 * k : 3 * k + 3] for k in range(steps)]
        parts = [(dataset.train.inputs[row], dataset.train.labels[row]) for row in rows]
        expected, velocity, more = reference.train(expected, parts, ppv, schedule, 0.05, 0.9, velocity)
        losses += more
    history, _ = fit(net, dataset, {"ppv": ppv, "schedule": schedule}, batch_size=3)
    np.testing.assert_allclose(history.losses, losses, rtol=1e-11)
    for k, (weight, bias) in enumerate(expected):
        np.testing.assert_allclose(net.parameters[f"{2 * k}.weight"], weight, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(net.parameters[f"{2 * k}.bias"], bias, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("ppv", [(), (1,), (2,), (2, 3), (1, 2, 3, 4)])
def test_none_is_plain_training_to_the_bit(ppv):
    options = {"lr_schedule": "cosine", "label_smoothing": 0.1}
    plain, cut, dataset = blocks(), blocks(), data(18, (1, 6, 6))
    theirs, optimizer = fit(plain, dataset, **options)
    ours, sgd = fit(cut, dataset, {"ppv": ppv, "schedule": "none"}, **options)
    assert ours.rows == theirs.rows and cut.random_state == plain.random_state
    equal(cut.state_dict(), plain.state_dict())
    equal(sgd.state_dict()["arrays"], optimizer.state_dict()["arrays"])
    assert sgd.steps == optimizer.steps == 10


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("ppv", "micro", "batch"), [((2,), 4, 7), ((1, 2, 3, 4), 5, 5), ((), 3, 16)])
def test_micro_batches_give_the_gradients_of_the_whole_batch(schedule, ppv, micro, batch):
    plain, cut, dataset = mlp(), mlp(), data(16)
    theirs, _ = fit(plain, dataset, batch_size=batch)
    ours, _ = fit(cut, dataset, {"ppv": ppv, "schedule": schedule, "micro_batches": micro}, batch_size=batch)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-12)
    for name, array in plain.parameters.items():
        np.testing.assert_allclose(cut.parameters[name], array, rtol=1e-12, atol=1e-14)


def test_micro_batches_weigh_by_the_labels_that_count():
    def make():
        layers = [bp.GRU(2, 3), bp.Linear(3, 4), bp.Tanh(), bp.Linear(4, 2)]
        return bp.Sequential(layers, (6, 2), seed=1, dtype="float64", device="host")

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (9, 6))
    labels[:2] = -100  # a micro-batch in which none counts
    split = Split(rng.standard_normal((9, 6, 2)), labels, None, rng.integers(1, 7, 9))
    dataset = Dataset("drawn", (6, 2), 2, split, None, None)
    settings = {"batch_size": 9, "epochs": 2}
    plain, cut = make(), make()
    theirs, _ = fit(plain, dataset, **settings)
    ours, _ = fit(cut, dataset, {"ppv": (1, 2), "schedule": "1f1b", "micro_batches": 5}, **settings)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-12)
    for name, array in plain.parameters.items():
        np.testing.assert_allclose(cut.parameters[name], array, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("after", [0, 3, 5, 7, 100])
def test_hybrid_training_loses_no_batch(after):
    dataset = data(18, (1, 6, 6))
    net, plain = blocks(), blocks()
    history, optimizer = fit(net, dataset, {"ppv": (1, 2), "non_pipelined_after": after})
    assert [row["step"] for row in history.rows] == list(range(1, 11)) and optimizer.steps == 10
    assert net.state_dict()["2.body.1.num_batches_tracked"] == 10
    if after == 0:
        fit(plain, dataset)
        equal(net.state_dict(), plain.state_dict())
    else:
        fit(plain, dataset, {"ppv": (1, 2)})
        ours, theirs = net.parameters.flat, plain.parameters.flat
        same = np.array_equal(ours, theirs)
        assert same == (after == 100)


@pytest.mark.parametrize("schedule", ["stale", "pipedream", "none"])
def test_a_checkpoint_resumes_to_the_bit_and_under_any_schedule(schedule, tmp_path):
    dataset, path = data(18, (1, 6, 6)), tmp_path / "net.h5"
    options, pipeline = {"lr_schedule": "half:1"}, {"ppv": (2, 3), "schedule": schedule}
    reference, first = blocks(), blocks()
    fit(reference, dataset, pipeline, epochs=3, **options)
    fit(first, dataset, pipeline, epochs=1, checkpoint=path, **options)
    for other in (pipeline, {"ppv": (1,), "schedule": "stale-1f1b"}, None):
        net = blocks()
        optimizer = bp.SGD(net.parameters, lr=0.05, momentum=0.9)
        trained = net if other is None else bp.Pipeline(net, **other)
        settings = Settings(batch_size=4, epochs=3, seed=5, checkpoint=tmp_path / "on.h5", **options)
        history = train(trained, dataset, optimizer, settings, resume=path)
        assert [row["step"] for row in history.rows] == list(range(6, 16))
        if other is pipeline:
            equal(net.state_dict(), reference.state_dict())


def test_a_step_that_is_not_finite_is_not_applied():
    net, dataset = mlp(), data(24)
    dataset.train.inputs[np.random.default_rng((5, 0)).permutation(24)[9]] = np.nan
    expected = mlp()
    fit(expected, dataset, {"ppv": (2, 3)}, epochs=1, iterations=3, batch_size=3)
    with pytest.raises(bp.NonFiniteError, match=r"step 4: take fewer cuts.*stale-1f1b"):
        fit(net, dataset, {"ppv": (2, 3)}, epochs=1, batch_size=3)
    assert all(np.isfinite(array).all() for array in net.parameters.values())


def test_recurrent_layers_and_lengths():
    def make():
        layers = [bp.LSTM(2, 3), bp.Linear(3, 4), bp.GRU(4, 3, outputs="last"), bp.Linear(3, 2)]
        return bp.Sequential(layers, (None, 2), seed=1, dtype="float64", device="host")

    rng = np.random.default_rng(0)
    split = Split(rng.standard_normal((10, 5, 2)), rng.integers(0, 2, 10), None, rng.integers(1, 6, 10))
    dataset = Dataset("drawn", (None, 2), 2, split, split, None)
    plain, cut = make(), make()
    theirs, _ = fit(plain, dataset)
    ours, _ = fit(cut, dataset, {"ppv": (1, 2, 3), "schedule": "none"})
    assert ours.rows == theirs.rows
    for schedule in ONE_BY_ONE:
        history, _ = fit(make(), dataset, {"ppv": (1, 2, 3), "schedule": schedule})
        assert np.isfinite(history.losses).all()


@pytest.mark.parametrize("schedule", ["stale", "pipedream", "gpipe"])
def test_on_every_device(device, schedule):
    def make(where):
        block = bp.Residual([bp.Conv2d(2, 2, 1), bp.BatchNorm2d(2), bp.Conv2d(2, 2, 1)])
        layers = [bp.Conv2d(1, 2, 3), block, bp.Flatten(), bp.Linear(8, 3)]
        return bp.Sequential(layers, (1, 4, 4), dtype="float64", device=where)

    dataset = data(8, (1, 4, 4))
    options = {"ppv": (2, 3), "schedule": schedule}
    states = []
    for where in (device, "host"):
        net = make(where)
        optimizer = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
        train(bp.Pipeline(net, **options), dataset, optimizer, Settings(batch_size=3, epochs=2))
        states.append(net.state_dict())
    for name, array in states[0].items():
        np.testing.assert_allclose(array, states[1][name], rtol=1e-10, atol=1e-12, err_msg=name)


def test_masks_that_are_set_later_are_kept():
    dataset, outcomes = data(12), []
    for cut in (False, True):
        net = mlp()
        optimizer = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
        trained = bp.Pipeline(net, (2,), "none") if cut else net
        train(trained, dataset, optimizer, Settings(batch_size=3, epochs=1))
        net.set_masks({"0.weight": np.random.default_rng(0).integers(0, 2, (7, 5))})
        train(trained, dataset, optimizer, Settings(batch_size=3, epochs=1))
        assert (net.parameters["0.weight"][net.masks["0.weight"] == 0] == 0).all()
        outcomes.append(net.parameters.flat.copy())
    np.testing.assert_array_equal(*outcomes)


def test_the_trace_holds_every_action():
    trace = []
    fit(mlp(), data(12), {"ppv": (2, 4), "schedule": "gpipe", "micro_batches": 2, "trace": trace}, epochs=1)
    assert len(trace) == 3 * (3 * (2 + 2 + 1)) and {action.stage for action, *_ in trace} == {0, 1, 2}
    assert all(begun <= ready <= ended for _, begun, ready, ended in trace)


@pytest.mark.parametrize("pipeline, settings, value, fix", [
    ({"schedule": "sale"}, {}, "'sale'", "none, stale, gpipe"), ({"micro_batches": 2}, {}, "stale", "gpipe"),
    ({"schedule": "gpipe", "micro_batches": 9}, {}, "9 micro-batches", "4"),
    ({"non_pipelined_after": -1}, {}, "non_pipelined_after=-1", "at least"),
    ({"ppv": (5,)}, {}, "5", "1 to 4"), ({}, {"clip": 1.0}, "clip", "all stages"),
    ({}, {"gradient_hook": print}, "gradient_hook", "all stages"),
    ({}, {"method": "linear"}, "'linear'", "bp"),
])  # fmt: skip
def test_refused_arguments(pipeline, settings, value, fix):
    call = lambda: fit(mlp(), data(8), {"ppv": (2,), **pipeline}, **settings)  # noqa: E731
    assert_refused(call, bp.BppsaError, value, fix)
