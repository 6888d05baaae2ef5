"""Training with batch normalisation: resumed to the bit, evaluated by running statistics; the commands."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.tools import jacobians, plan, train

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


@pytest.mark.long
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
