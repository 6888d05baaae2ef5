"""Saving and loading a checkpoint is the identity; damaged and foreign ones are refused."""

import dataclasses

import numpy as np
import pytest
from plan_cases import edited
from refusals import assert_refused

from bppsa_cupy.errors import CheckpointError
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

NETWORK = {
    "input_shape": [3, 32, 32],
    "layers": [
        {"type": "Conv2d", "in_channels": 3, "kernel_size": [5, 5], "bias": True},
        {"type": "ReLU"},
        {"type": "Linear", "in_features": 10, "weight_mask": "ab" * 32},
    ],
}


def make(dtype="float32", **changes):
    generator = np.random.default_rng(3)
    names = ["10.weight", "2.weight", "0.bias", "0.weight_hh_l0"]
    optimizer = {
        "name": "Adam",
        "hyperparameters": {"lr": 0.1 + 0.2, "betas": [0.9, 0.999], "eps": 1e-8},
        "steps": 17,
        "arrays": {name: generator.normal(size=12).astype(dtype) for name in ("second", "first")},
    }
    fields = {
        "network": NETWORK,
        "dtype": dtype,
        "parameters": {name: generator.normal(size=(k, 4)).astype(dtype) for k, name in enumerate(names)},
        "masks": {"2.weight": generator.random((3, 4)) > 0.5},
        "optimizer": optimizer,
        "random_state": {"seed": 5, "generator": generator.bit_generator.state},
        "recipe": {"lr_schedule": "half:3"},
        "epoch": 2,
        "step": 123_456_789_012,
    }
    return Checkpoint(**{**fields, **changes})


def assert_same(a, b):
    for item in dataclasses.fields(Checkpoint):
        assert_same_value(getattr(a, item.name), getattr(b, item.name))


def assert_same_value(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for name in a:
            assert_same_value(a[name], b[name])
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    else:
        assert a == b


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_save_then_load_is_the_identity(tmp_path, dtype):
    special = np.array([np.nan, -np.inf, -0.0, 5e-324]).astype(dtype)
    for checkpoint in (make(dtype), make(dtype, parameters={"0.weight": special}), Checkpoint({}, dtype, {})):
        save_checkpoint(tmp_path / "c.h5", checkpoint)
        assert_same(load_checkpoint(tmp_path / "c.h5"), checkpoint)


DAMAGES = [
    (lambda f: f.attrs.update(format="bppsa-plan"), "'bppsa-plan'"),
    (lambda f: f.attrs.__delitem__("step"), "'step'"),
    (lambda f: f["masks"].create_group("x"), "x"),
]


@pytest.mark.parametrize("change, named", DAMAGES)
def test_foreign_content_is_refused(tmp_path, change, named):
    save_checkpoint(tmp_path / "a.h5", make())
    path = edited(tmp_path / "a.h5", tmp_path / "b.h5", change)
    assert_refused(lambda: load_checkpoint(path), CheckpointError, named, "b.h5")
