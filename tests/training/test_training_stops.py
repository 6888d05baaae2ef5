"""What stops training before it starts, or where it diverges, leaves good files as they were."""

import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
from training_cases import dataset, make, optimizer_of, run  # noqa: F401

import bppsa_cupy as bp
from bppsa_cupy.data import Dataset, Split, load
from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


@pytest.fixture
def checkpoint(dataset, tmp_path):
    """A good checkpoint of step 4."""
    run(dataset, epochs=1, checkpoint=tmp_path / "good.h5")
    return tmp_path / "good.h5"


# ---- divergence ----


def test_a_test_loss_that_is_not_finite_keeps_the_checkpoint(dataset, checkpoint, tmp_path):
    good, log = checkpoint.read_bytes(), tmp_path / "log.jsonl"

    def last_step(network):
        if network.parameters.version == 5:
            network.parameters["4.weight"][...] = np.inf

    with pytest.raises(bp.NonFiniteError, match=r"test loss is (nan|inf) after step 8.*last good .*good\.h5"):
        run(
            dataset,
            resume=checkpoint,
            epochs=2,
            checkpoint=checkpoint,
            log=log,
            gradient_hook=last_step,
        )
    assert checkpoint.read_bytes() == good
    assert [json.loads(line)["step"] for line in log.read_text(encoding="utf-8").splitlines()] == [5, 6, 7]


@pytest.fixture
def without_test(tmp_path):
    rng = np.random.default_rng(4)
    np.savez(tmp_path / "d.npz", x=rng.standard_normal((32, 1, 6, 6)), y=np.arange(32) % 3)
    return load(tmp_path / "d.npz")


def test_parameters_that_are_not_finite_are_not_saved(without_test, tmp_path):
    file = tmp_path / "state.h5"

    def poison(network):
        network.parameters["4.weight"][0, 0] = np.inf

    with pytest.raises(bp.NonFiniteError, match="parameter or buffer is not finite after step 1:") as caught:
        run(without_test, epochs=2, iterations=1, checkpoint=file, gradient_hook=poison)
    assert not file.exists() and "last good" not in str(caught.value)


def test_running_statistics_that_are_not_finite_are_not_saved(tmp_path):
    """A variance beyond the range of float32, where loss and parameters are finite."""
    rng, file = np.random.default_rng(1), tmp_path / "state.h5"
    inputs = rng.standard_normal((16, 1, 4, 4)).astype(np.float32)
    split = Split(inputs, np.arange(16) % 3, None)
    layers = [bp.Conv2d(1, 2, 3), bp.BatchNorm2d(2), bp.Flatten(), bp.Linear(8, 3)]
    net = bp.Sequential(layers, (1, 4, 4), device="host")
    settings = Settings(method="bp", epochs=1, batch_size=4, checkpoint=file)
    train(net, Dataset("made", (1, 4, 4), 3, split, None, None), optimizer_of(net), settings)
    spoilt(file, lambda state: state.data.clear())  # the samples that follow are others
    good = file.read_bytes()
    split.inputs[...] *= np.float32(1e20)
    again = bp.Sequential(layers, (1, 4, 4), device="host")
    with pytest.raises(bp.NonFiniteError, match=r"buffer is not finite after step 8: .*state\.h5"):
        train(
            again, Dataset("made", (1, 4, 4), 3, split, None, None), optimizer_of(again),
            replace(settings, epochs=2), resume=file,
        )  # fmt: skip
    assert np.isfinite(again.parameters.flat).all() and file.read_bytes() == good


@pytest.mark.parametrize(
    "seam", ["bppsa_cupy.data.ahead.check_thread_room", "bppsa_cupy.training.loop.snapshot"]
)
def test_too_little_memory_leaves_the_checkpoint_of_an_epoch(dataset, tmp_path, monkeypatch, seam):
    """Whenever memory ends: the checkpoint before the run, or that of an epoch of a run in peace."""
    path, epochs, found = tmp_path / "c.h5", [b"older"], []
    monkeypatch.setattr(
        "bppsa_cupy.training.loop.save_checkpoint",
        lambda *given: save_checkpoint(*given) or epochs.append(path.read_bytes()),
    )
    run(dataset, epochs=3, checkpoint=path)
    undisturbed, calls = list(epochs), 0
    module, _, name = seam.rpartition(".")
    original = getattr(importlib.import_module(module), name)

    def ends(*given):
        nonlocal calls
        calls -= 1
        if calls == 0:
            raise MemoryError("none left")
        return original(*given)

    monkeypatch.setattr(seam, ends)
    for number in range(1, 9):
        path.write_bytes(undisturbed[0])
        calls = number
        try:
            run(dataset, epochs=3, checkpoint=path)
        except MemoryError:
            found.append(undisturbed.index(path.read_bytes()))
    assert found == ([0, 0, 1, 1, 2, 2] if "thread" in seam else [0, 1, 2])


# ---- failed starts ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"checkpoint": "none/state.h5"}, r"none/state\.h5 cannot be written"),
        ({"method": "blelloch"}, "none is in use"),
        ({"seed": 5, "resume": True}, "seed 0 and 5 is asked for"),
    ],
)
def test_a_start_that_fails_keeps_the_log(dataset, checkpoint, tmp_path, settings, message):
    log, resume = tmp_path / "log.jsonl", None
    log.write_text('{"step": 1, "loss": 0.5}\n', encoding="utf-8")
    if "checkpoint" in settings:
        settings = {"checkpoint": tmp_path / settings["checkpoint"]}
    if "resume" in settings:
        settings, resume = {"seed": 5}, checkpoint
    with pytest.raises(bp.BppsaError, match=message):
        run(dataset, resume=resume, epochs=2, log=log, **settings)
    assert log.read_text(encoding="utf-8") == '{"step": 1, "loss": 0.5}\n'


# ---- resuming ----


def spoilt(path, act):
    state = load_checkpoint(path)
    act(state)
    save_checkpoint(path, state)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda s: s.data.update(name="other", digest="0"), "with data other .* is asked for"),
        (lambda s: s.random_state.clear(), "seed None and 0 is asked for.*no checkpoint of training"),
        (lambda s: s.optimizer.clear(), "lacks its optimizer's name, hyperparameters, steps, arrays"),
        (lambda s: s.optimizer.update(name="Adam"), "optimizer is Adam, this one is SGD"),
        (lambda s: s.optimizer["hyperparameters"].update(lr=0.5), r"lr 0\.5 and lr 0\.05 is asked for"),
        (lambda s: s.optimizer["hyperparameters"].pop("lr"), "SGD has momentum,"),
        (lambda s: s.optimizer["arrays"].clear(), "SGD keeps no array, this one velocity"),
        (lambda s: s.parameters["0.bias"].fill(np.nan), r"0\.bias holds NaN or infinity"),
    ],
)
def test_what_differs_is_said_and_nothing_is_set(dataset, checkpoint, act, message):
    spoilt(checkpoint, act)
    net = make(seed=3)
    before = net.state_dict()
    with pytest.raises(bp.CheckpointError, match=message):
        run(dataset, net, resume=checkpoint, epochs=2)
    assert all(np.array_equal(net.parameters[name], before[name]) for name in before)
