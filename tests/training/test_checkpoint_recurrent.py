"""Checkpoints of recurrent networks as earlier versions wrote them, attribute by attribute, load."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.system.hdf5 import create
from bppsa_cupy.training.checkpoint import load_checkpoint

LAYER = {
    "input_shape": [5, 2], "input_size": 2, "hidden_size": 3, "num_layers": 1, "bias": True,
    "batch_first": True, "dropout": 0.0, "bidirectional": False, "outputs": "all",
}  # fmt: skip

#: What files hold of the first layer, and how it is made now.
WRITTEN = {
    "RNN": ({"nonlinearity": "relu"}, lambda: bp.RNN(2, 3, nonlinearity="relu"), 1),
    "GRU": ({"num_layers": 2, "bidirectional": True}, lambda: bp.GRU(2, 3, 2, bidirectional=True), 3),
    "LSTM": ({"outputs": "last", "proj_size": 0}, lambda: bp.LSTM(2, 3, outputs="last"), 4),
}


def parameter_shapes(layer: dict, gates: int) -> dict[str, tuple[int, ...]]:
    """PyTorch's names, with the layer's number before them."""
    sides, rows = ("", "_reverse") if layer["bidirectional"] else ("",), 3 * gates
    shapes: dict[str, tuple[int, ...]] = {}
    for number in range(layer["num_layers"]):
        for side in sides:
            inputs = 3 * len(sides) if number else 2
            shapes[f"0.weight_ih_l{number}{side}"] = (rows, inputs)
            shapes[f"0.weight_hh_l{number}{side}"] = (rows, 3)
            shapes[f"0.bias_ih_l{number}{side}"] = shapes[f"0.bias_hh_l{number}{side}"] = (rows,)
    return {**shapes, "1.weight": (4, 3 * len(sides)), "1.bias": (4,)}


@pytest.fixture(params=WRITTEN)
def written(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator):
    """The file, its parameters and its optimizer's arrays, and the network that it belongs to."""
    changes, make, gates = WRITTEN[request.param]
    layer = {"type": request.param, **LAYER, **changes}
    width = 6 if layer["bidirectional"] else 3
    linear = {
        "type": "Linear", "input_shape": [width] if layer["outputs"] == "last" else [5, width],
        "in_features": width, "out_features": 4, "bias": True,
    }  # fmt: skip
    parameters = {
        name: 0.5 * rng.standard_normal(shape) for name, shape in parameter_shapes(layer, gates).items()
    }
    # One array for all parameters, each from a multiple of eight values on.
    size = sum(8 * -(-values.size // 8) for values in parameters.values())
    moments = {name: rng.random(size) for name in ("first", "second")}
    adam = {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
    with create(tmp_path / "c.h5") as file:
        file.attrs.update(format="bppsa-checkpoint", format_version=1, dtype="float64", epoch=1, step=7)
        file.attrs["network"] = json.dumps({"input_shape": [5, 2], "layers": [layer, linear]})
        file.attrs["optimizer"] = json.dumps({"name": "Adam", "hyperparameters": adam, "steps": 7})
        file.attrs["random_state"] = "{}"
        for group, arrays in (("parameters", parameters), ("masks", {}), ("optimizer", moments)):
            place = file.create_group(group, track_order=True)
            for name, array in arrays.items():
                place.create_dataset(name, data=array, chunks=array.shape, fletcher32=True)
    net = bp.Sequential([make(), bp.Linear(width, 4)], (5, 2), dtype="float64", device="host")
    return tmp_path / "c.h5", parameters, moments, net


def test_a_checkpoint_of_an_earlier_version_goes_on(written) -> None:
    path, parameters, moments, net = written
    checkpoint = load_checkpoint(path)
    checkpoint.check(net.describe(), "float64")
    net.load_state_dict(checkpoint.parameters)
    state = net.state_dict()
    assert list(state) == list(parameters)
    for name, values in parameters.items():
        np.testing.assert_array_equal(state[name], values)
    adam = bp.Adam(net.parameters, lr=0.01)
    adam.load_state_dict(checkpoint.optimizer)
    for name, values in moments.items():
        np.testing.assert_array_equal(adam.state_dict()["arrays"][name], values)


def test_its_outputs_are_those_of_pytorchs_module(written, rng: np.random.Generator) -> None:
    path, parameters, _, net = written
    net.load_state_dict(load_checkpoint(path).parameters)
    layer, x = net.layers[0], rng.standard_normal((4, 5, 2))
    more = {"nonlinearity": "relu"} if isinstance(layer, bp.RNN) else {}
    module = getattr(torch.nn, type(layer).__name__)(
        2, 3, layer.num_layers, batch_first=True, bidirectional=layer.bidirectional, **more
    ).double()
    tensors = {name: torch.tensor(values) for name, values in parameters.items()}
    module.load_state_dict({name[2:]: tensor for name, tensor in tensors.items() if name.startswith("0.")})
    with torch.no_grad():
        output = module(torch.tensor(x))[0]
        taken = output[:, -1] if layer.outputs == "last" else output
        expected = torch.nn.functional.linear(taken, tensors["1.weight"], tensors["1.bias"])
    assert_close(net.forward(x), expected.numpy(), 64)
