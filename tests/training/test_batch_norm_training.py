"""Training with batch normalisation: resumed to the bit, evaluated by running statistics; the commands."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.data import load
from bppsa_cupy.tools import jacobians, plan, train
from bppsa_cupy.training.loop import train as run
from bppsa_cupy.training.settings import Settings

FACTORY = """
import bppsa_cupy as bp

def tiny(input_shape=(1, 8, 8), classes=3, **options):
    body = [bp.Conv2d(2, 2, 3, padding=1, bias=False), bp.BatchNorm2d(2), bp.Dropout(0.2)]
    layers = [bp.Conv2d(1, 2, 3, bias=False), bp.BatchNorm2d(2, momentum=None), bp.ReLU(), bp.Residual(body),
              bp.Flatten(), bp.Linear(72, classes)]
    return bp.Sequential(layers, input_shape, **options)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The factory's file and a data set, in the present folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(FACTORY, encoding="utf-8")
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, 50)
    images = rng.standard_normal((50, 1, 8, 8)).astype("float32")
    images[np.arange(50), 0, labels] += 4
    np.savez("data.npz", x_train=images[:34], y_train=labels[:34], x_test=images[34:], y_test=labels[34:])
    return "tiny.py:tiny"


def trained(file, epochs, resume=None, checkpoint=None):
    network = bp.models.build_model(file, seed=3, device="host")
    optimizer = bp.SGD(network.parameters, lr=0.05, momentum=0.9)
    settings = Settings(epochs=epochs, batch_size=16, checkpoint=checkpoint)
    return network, run(network, load("data.npz"), optimizer, settings, resume=resume)


def test_resuming_gives_the_same_bits_buffers_included(file, tmp_path):
    whole, history = trained(file, 3)
    trained(file, 1, checkpoint=tmp_path / "c.h5")
    rest, resumed = trained(file, 3, resume=tmp_path / "c.h5")
    assert resumed.rows == history.rows[3:]
    expected = whole.state_dict()
    assert expected["1.num_batches_tracked"] == expected["3.body.1.num_batches_tracked"] == 9
    assert all(np.array_equal(expected[name], array) for name, array in rest.state_dict().items())


def test_evaluation_leaves_the_buffers_alone(file):
    network, _ = trained(file, 1)
    before = network.buffers.to_host()
    network.eval().forward(np.ones((2, 1, 8, 8), "float32"))
    assert all(np.array_equal(before[name], array) for name, array in network.buffers.to_host().items())


def test_the_commands_take_either_mode(file, capsys):
    common = [file, "--device", "host"]
    assert train.main([*common, "--data", "data.npz", "--epochs", "1", "--checkpoint", "c.h5"]) == 0
    for options, names in (
        ([], ["0 Conv2d", "2 ReLU", "3.body.0 Conv2d", "3.body.2 Dropout", "5 Linear"]),
        (["--eval"], ["1 BatchNorm2d", "3.body.1 BatchNorm2d"]),
    ):
        dump = ["dump", *common, *options, "--data", "data.npz", "--checkpoint", "c.h5", "-o", "j.h5"]
        assert jacobians.main(dump) == 0
        labels = [record.label for record in bp.load_jacobians("j.h5")]
        assert set(names) <= set(labels) and ("1 BatchNorm2d" in labels) == bool(options)
    assert jacobians.main(["show", "j.h5"]) == 0
    assert "3.body.1 BatchNorm2d" in capsys.readouterr().out
    build = ["build", *common, "--batch-size", "4", "-o", "p.h5"]
    verify = ["verify", "p.h5", "--model", *common]
    assert plan.main(build) == plan.main(verify) == 0
    assert plan.main([*verify, "--eval"]) == 1
    assert "mode training in the plan, evaluation in the network" in capsys.readouterr().err
    assert plan.main([*build, "--eval"]) == plan.main([*verify, "--eval"]) == 0
    step = ["--data", "data.npz", "--epochs", "1", "--batch-size", "4", "--method", "linear"]
    assert train.main([*common, *step, "--plan", "p.h5"]) == 1
    assert "mode evaluation in the plan, training in the network" in capsys.readouterr().err
