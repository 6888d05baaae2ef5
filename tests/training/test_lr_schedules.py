"""Learning-rate schedules against PyTorch's, in texts, and in training that resumes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler
from training_cases import dataset, make, torch_batches  # noqa: F401

import bppsa_cupy as bp
from bppsa_cupy.training.checkpoint import load_checkpoint
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.schedules import RateSchedule
from bppsa_cupy.training.settings import Settings

PER_EPOCH = 4


def warm(steps):
    return lambda optimizer, last: lr_scheduler.LinearLR(optimizer, 1 / steps, 1.0, steps - 1)


def cosine(optimizer, last):
    return lr_scheduler.CosineAnnealingLR(optimizer, last)


def behind(steps, first, then):
    def make(optimizer, last):
        parts = [first(optimizer, last), then(optimizer, last - steps)]
        return lr_scheduler.SequentialLR(optimizer, parts, [steps])

    return make


def chained(*parts):
    return lambda optimizer, last: lr_scheduler.ChainedScheduler([part(optimizer, last) for part in parts])


def exponential(gamma, step):
    """StepLR multiplies as it goes; this is the same by a power."""
    return lambda optimizer, last: lr_scheduler.StepLR(optimizer, step * PER_EPOCH, gamma)


CASES = {
    "step:2:0.1": exponential(0.1, 2),
    "half:3": exponential(0.5, 3),
    "inv:0.05:0.75": lambda optimizer, last: lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + 0.05 * step) ** -0.75
    ),
    "cosine": cosine,
    "warmup:5": warm(5),
    "warmup:5,cosine": behind(5, warm(5), cosine),
    "step:2:0.5,warmup:3": chained(exponential(0.5, 2), warm(3)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", CASES)
def test_factors_are_pytorchs(text):
    last = 25
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    scheduler = CASES[text](optimizer, last)
    schedule = RateSchedule.read(text).over(last)
    for step in range(last):
        assert 0.3 * schedule.factor(step, PER_EPOCH) == pytest.approx(
            optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-12
        )
        optimizer.step()
        scheduler.step()


@given(
    warmup=st.integers(1, 30), rest=st.integers(1, 60), per_epoch=st.integers(1, 9), gamma=st.floats(0, 2),
    epochs=st.integers(1, 5),
)  # fmt: skip
def test_a_schedule_is_the_product_of_its_parts_and_stays_at_its_end(warmup, rest, per_epoch, gamma, epochs):
    text = f"cosine,step:{epochs}:{gamma},warmup:{warmup}"
    schedule = RateSchedule.read(text).over(warmup + rest)
    alone = [RateSchedule.read(f"step:{epochs}:{gamma}"), RateSchedule.read(f"warmup:{warmup}")]
    for step in range(warmup + 1):
        expected = alone[0].factor(step, per_epoch) * alone[1].factor(step, per_epoch)
        assert schedule.factor(step, per_epoch) == pytest.approx(expected)
    assert all(schedule.factor(warmup + rest + k, per_epoch) == 0 for k in (0, 1, 100))
    assert RateSchedule.read(str(schedule)) == schedule == RateSchedule.read(str(schedule)).over(10**6)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "'' is no schedule"),
        ("linear:3", "'linear:3' is no schedule of the learning rate: give step:EPOCHS:GAMMA, half"),
        ("step:3", "'step:3' is no schedule"),
        ("step", "'step' is no schedule"),
        ("cosine:9:9", "'cosine:9:9' is no schedule"),
        ("half:1:2", "'half:1:2' is no schedule"),
        ("step:1.5:0.1", "no schedule of the learning rate .invalid literal"),
        ("half:0", "'half:0' has EPOCHS 0: it must be finite, at least 1"),
        ("inv:nan:1", "has GAMMA nan: it must be finite"),
        ("inv:1:-1", "has POWER -1.0"),
        ("inv:inf:1", "has GAMMA inf: it must be finite"),
        ("half:1,half:2", "has half twice: give it once"),
    ],
)
def test_texts_that_are_refused(text, message):
    with pytest.raises(bp.BppsaError, match=message):
        Settings(lr_schedule=text)


def test_a_warm_up_that_leaves_no_cosine_is_refused(dataset):
    net = make()
    with pytest.raises(bp.BppsaError, match="the warm-up takes 12 steps, the cosine ends at step 12"):
        train(
            net,
            dataset,
            bp.SGD(net.parameters),
            Settings(epochs=3, batch_size=16, lr_schedule="cosine,warmup:12"),
        )


def test_a_rate_that_grows_beyond_floats_is_refused_before_the_first_step(dataset):
    net, settings = make(), Settings(epochs=3, batch_size=16, lr_schedule="step:1:1e200")
    before = net.state_dict()
    with pytest.raises(bp.BppsaError, match=r"step:1:1e\+200 is beyond the range of floats at step 12:"):
        train(net, dataset, bp.SGD(net.parameters), settings)
    assert all(np.array_equal(before[name], array) for name, array in net.state_dict().items())


def test_the_schedule_of_one_training_is_not_the_next_ones(dataset):
    """Also where a training is broken off."""
    net = make()
    optimizer = bp.SGD(net.parameters, lr=0.1)
    optimizer.lr_factor = 0.5
    settings = Settings(epochs=1, batch_size=16, lr_schedule="cosine")
    train(net, dataset, optimizer, settings)
    assert optimizer.lr_factor == 0.5

    def stop(network):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(net, dataset, optimizer, replace(settings, lr_schedule="warmup:9", gradient_hook=stop))
    assert optimizer.lr_factor == 0.5


def test_training_is_pytorchs(dataset):
    """With groups, smoothing and a schedule: PyTorch's AdamW on the same batches."""
    net = make()
    optimizer = bp.AdamW(net.parameters, lr=0.05, groups=[{"params": 4, "lr": 0.01, "weight_decay": 0.0}])
    settings = Settings(epochs=3, batch_size=16, lr_schedule="warmup:3,cosine", label_smoothing=0.1)
    nn = torch.nn
    theirs = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)
    ).double()
    theirs.load_state_dict({name: torch.tensor(array) for name, array in net.state_dict().items()})
    reference = torch.optim.AdamW(
        [
            {"params": theirs[0].parameters()},
            {"params": theirs[4].parameters(), "lr": 0.01, "weight_decay": 0.0},
        ],
        lr=0.05,
    )
    scheduler = behind(3, warm(3), cosine)(reference, 12)
    history = train(net, dataset, optimizer, settings)
    assert history.rows[0]["lr"] == pytest.approx(0.05 / 3) and history.rows[3]["lr"] == 0.05
    losses = []
    for inputs, labels in torch_batches(dataset, epochs=3):
        reference.zero_grad()
        loss = nn.functional.cross_entropy(theirs(inputs), labels, label_smoothing=0.1)
        loss.backward()
        reference.step()
        scheduler.step()
        losses.append(loss.item())
    np.testing.assert_allclose(history.losses, losses, rtol=1e-8)


@pytest.mark.parametrize("other", [{"lr_schedule": None}, {"augment": None}, {"label_smoothing": 0.1}])
def test_a_checkpoint_of_another_recipe_is_refused(dataset, tmp_path, other):
    recipe = {"lr_schedule": "step:2:0.5", "augment": "crop-flip", "label_smoothing": 0.2}
    settings = Settings(batch_size=16, iterations=1, checkpoint=tmp_path / "c.h5", **recipe)
    net = make()
    train(net, dataset, bp.SGD(net.parameters), settings)
    assert load_checkpoint(tmp_path / "c.h5").recipe == recipe
    with pytest.raises(bp.CheckpointError, match=next(iter(other))):
        train(net, dataset, bp.SGD(net.parameters), replace(settings, **other), tmp_path / "c.h5")
