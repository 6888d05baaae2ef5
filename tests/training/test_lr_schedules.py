"""Learning-rate schedules against PyTorch's, in texts, and in training that resumes."""

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler
from training_cases import dataset, make, torch_batches  # noqa: F401

import bppsa_cupy as bp
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import RateSchedule, Settings

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


def test_training_is_pytorchs(dataset):
    """With smoothing and a schedule: PyTorch's AdamW on the same batches."""
    net = make()
    optimizer = bp.AdamW(net.parameters, lr=0.05)
    settings = Settings(epochs=3, batch_size=16, lr_schedule="warmup:3,cosine", label_smoothing=0.1)
    nn = torch.nn
    theirs = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)
    ).double()
    theirs.load_state_dict({name: torch.tensor(array) for name, array in net.state_dict().items()})
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.05)
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
