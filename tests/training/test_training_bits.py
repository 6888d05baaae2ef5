"""Training that is stopped and resumed, again and again, gives the bits of training without a stop: with all
that a step follows from, and that a network, an optimizer and a recipe hold."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some

import bppsa_cupy as bp
from bppsa_cupy.data import Dataset, Normalization, Split
from bppsa_cupy.training.checkpoint import load_checkpoint
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

CLASSES, SHAPE = 3, (2, 6, 5)
#: 11 samples in batches of 4: steps 3, 6 and 9 end epochs with a batch of 3.
SETTINGS = Settings(
    method="bp", epochs=3, batch_size=4, seed=7, clip=0.5, lr_schedule="warmup:3,cosine:9,half:2",
    augment="crop-flip", label_smoothing=0.1,
)  # fmt: skip
OPTIMIZERS = {
    "sgd": (bp.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    "adamw": (bp.AdamW, {"lr": 0.02}),
}


def dataset():
    rng = np.random.default_rng(5)
    constants = Normalization((0.5, 0.4), (0.2, 0.3))
    train_split, test = (
        Split(rng.integers(0, 256, (count, *SHAPE), dtype=np.uint8), np.arange(count) % CLASSES, constants)
        for count in (11, 5)
    )
    return Dataset("made", SHAPE, CLASSES, train_split, test, constants)


def network(seed=0):
    body = [bp.Conv2d(3, 4, 3, 2, 1, bias=False), bp.BatchNorm2d(4), bp.ReLU(), bp.Dropout(0.2)]
    layers = [
        bp.Conv2d(2, 3, 3, padding=1), bp.BatchNorm2d(3, momentum=None),
        bp.Residual(body, [bp.PadShortcut(4, 2)]), bp.GELU(),
        bp.AvgPool2d(3), bp.Flatten(), bp.Dropout(0.4), bp.Linear(4, CLASSES),
    ]  # fmt: skip
    return bp.Sequential(layers, SHAPE, seed=seed, dtype="float64", device="host")


def everything(net, optimizer):
    """All that training changes, by name."""
    state = optimizer.state_dict()
    arrays = {**net.state_dict(), **{f"optimizer {name}": array for name, array in state["arrays"].items()}}
    return {**arrays, "steps": np.array(state["steps"]), "passes": np.array(net.random_state["passes"])}


def run_parts(kind, stops, file):
    """The history and the state of training that stops behind these steps; each part begins with a network
    and an optimizer of its own."""
    rows, resume = [], None
    for stop in [*stops, None]:
        make, options = OPTIMIZERS[kind]
        net = network(seed=0 if resume is None else 99)
        optimizer = make(net.parameters, **options)
        part = replace(SETTINGS, iterations=stop, checkpoint=file)
        rows += train(net, dataset(), optimizer, part, resume).rows
        resume = file
    return rows, everything(net, optimizer)


@pytest.mark.parametrize("kind", some("adamw", long=[kind for kind in OPTIMIZERS if kind != "adamw"]))
@settings(max_examples=8)
@given(stops=st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True).map(sorted))
def test_stops_change_no_bit(kind, stops, tmp_path):
    expected_rows, expected = run_parts(kind, [], tmp_path / "whole.h5")
    rows, state = run_parts(kind, stops, tmp_path / "parts.h5")
    assert [(row["step"], row["loss"], row["lr"], row["gradient_norm"]) for row in rows] == [
        (row["step"], row["loss"], row["lr"], row["gradient_norm"]) for row in expected_rows
    ]
    assert rows[-1]["test_loss"] == expected_rows[-1]["test_loss"]
    assert list(state) == list(expected)
    for name, array in expected.items():
        assert np.array_equal(state[name], array), name
    assert load_checkpoint(tmp_path / "parts.h5").step == 9
