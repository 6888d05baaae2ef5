"""Built-in models, and models by file or module."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.models import MODELS, build_model, find_factory


@pytest.mark.parametrize("name, parameters", [("lenet5", 62006), ("vgg11", 9225610)])
def test_sizes_are_the_known_ones(name, parameters):
    net = build_model(name, device="host")
    assert sum(array.size for array in net.parameters.values()) == parameters
    assert net.output_shape == (10,)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_options_reach_the_network(name):
    shape = (9, 2) if name in ("rnn", "gru", "lstm") else (1, 32, 32)
    net = build_model(name, input_shape=shape, classes=3, dtype="float64", seed=4, device="host")
    assert net.dtype == np.float64 and net.input_shape == shape and net.output_shape == (3,)


def test_lenet5_takes_other_sizes():
    assert build_model("lenet5", input_shape=(3, 40, 33), device="host").output_shape == (10,)
    with pytest.raises(bp.ShapeError, match="H and W of at least 16"):
        build_model("lenet5", input_shape=(3, 15, 32), device="host")
    with pytest.raises(bp.ShapeError, match="H and W of at least 32"):
        build_model("vgg11", input_shape=(3, 31, 32), device="host")


def test_a_model_of_the_users_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import bppsa_cupy as bp\n"
        "def tiny(input_shape=(2,), **options):\n"
        "    return bp.Sequential([bp.Linear(input_shape[0], 3)], input_shape, **options)\n"
        "def wrong(**options):\n"
        "    return 3\n"
    )
    assert build_model(f"{file}:tiny", device="host").output_shape == (3,)
    assert build_model(f"{file}:tiny", input_shape=(5,), device="host").input_shape == (5,)
    with pytest.raises(bp.BppsaError, match="a factory returns a Sequential"):
        build_model(f"{file}:wrong", device="host")
    with pytest.raises(bp.BppsaError, match="has no function 'absent'"):
        find_factory(f"{file}:absent")
    file.write_text("import nothing_of_that_name\n")
    with pytest.raises(bp.BppsaError, match="fails: ModuleNotFoundError"):
        find_factory(f"{file}:tiny")


def test_specs_that_name_nothing(tmp_path):
    assert find_factory("bppsa_cupy.models:lenet5") is MODELS["lenet5"]
    with pytest.raises(bp.BppsaError, match="'alexnet9' is none of lenet5"):
        find_factory("alexnet9")
    with pytest.raises(bp.BppsaError, match="cannot be imported"):
        find_factory("no_such_module_here:factory")
    with pytest.raises(bp.BppsaError, match="does not exist"):
        find_factory(f"{tmp_path / 'none.py'}:factory")
