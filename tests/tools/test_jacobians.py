"""bppsa-jacobians: each command runs; files, rasters and curves hold the numbers of dense matrices."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from chain_cases import network_records
from commands import command, error_line, folder  # noqa: F401  folder is a fixture
from marks import some

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.models import build_model
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.tools.jacobian_files import describe
from bppsa_cupy.tools.jacobians import OVER_TIME
from bppsa_cupy.training.checkpoint import Checkpoint, save_checkpoint

pytestmark = pytest.mark.usefixtures("folder")
main = command("bppsa-jacobians")


def dump(*options):
    words = "dump model.py:small --data data.npz --device host -o j.h5 --batch-size 4"
    return main([*words.split(), *options])


def record(shape=(6, 4), batch=3, layer=2, **fields):
    generator = np.random.default_rng(0)
    pattern = Pattern.from_scipy(scipy.sparse.random_array(shape, density=0.4, rng=generator))
    data = generator.integers(0, 3, (pattern.nnz, batch)).astype(np.float32)
    return JacobianRecord(layer, "MaxPool2d", pattern, data, **fields)


def test_dump(capsys):
    assert dump("--dtype", "float64") == 0
    first, relu, last = load_jacobians("j.h5")
    weights = build_model("model.py:small", seed=0, device="host", dtype="float64").state_dict()
    np.testing.assert_array_equal(first.to_scipy().toarray(), weights["0.weight"].T)
    np.testing.assert_array_equal(last.to_scipy().toarray(), weights["2.weight"].T)
    assert (first.batch, relu.batch, relu.pattern) == (None, 4, Pattern.diagonal(5))
    assert all(record.gradient_norm > 0 for record in (first, relu, last))
    assert dump("--dtype", "float64", "--sample", "2", "--compress") == 0
    alone = load_jacobians("j.h5")
    assert [record.sample for record in alone] == [None, 2, None]
    np.testing.assert_array_equal(alone[1].data, relu.data[:, 2])
    network = build_model("model.py:small", seed=9, device="host")
    save_checkpoint("c.h5", Checkpoint(network.describe(), "float32", network.state_dict()))
    assert dump("--from", "c.h5") == 0
    np.testing.assert_array_equal(
        load_jacobians("j.h5")[0].to_scipy().toarray(), network.state_dict()["0.weight"].T
    )
    capsys.readouterr()
    for options in (["--sample", "4"], ["--from", "none.h5"], ["--from", "c.h5", "--dtype", "float64"]):
        assert dump(*options) == 1 and error_line(capsys)


def test_show(capsys):
    data = np.array([[0, 1], [2, 3], [0, 0], [4, np.nan]], np.float32)
    row = describe(JacobianRecord(1, "ReLU", Pattern.diagonal(4), data))
    assert (row["guaranteed_sparsity"], row["actual_sparsity"]) == (0.75, 1 - 5 / 32)
    assert row["bytes"] == 8 * 4 + 4 * 4 + 5 * 4
    save_jacobians("j.h5", [record(gradient_norm=0.5), record(layer=3, direction="backward", step=7)])
    assert main(["show", "j.h5"]) == 0
    capsys.readouterr()
    assert main(["show", "j.h5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["records"]
    assert rows == [describe(record) for record in load_jacobians("j.h5")]


def test_plot_and_report(capsys):
    save_jacobians("j.h5", [record(), record(layer=3), record(layer=3, step=1)])
    for words in ("plot j.h5 -o a.png", "plot j.h5 -o b.svg --layer 3 --step 1 --rows 1:4 --show zeros",
                  "report j.h5", "report j.h5 -o page.htm"):  # fmt: skip
        assert main(words.split()) == 0
    for options in ("--layer 5", "--step 9", "--sample 3", "--columns 2:9", "-o page.txt"):
        assert main(["plot", "j.h5", "-o", "c.png", *options.split()]) == 1 and error_line(capsys)


@pytest.mark.parametrize("name", some("norms", long=[name for name in OVER_TIME if name != "norms"]))
def test_pictures_over_time(name, capsys):
    net, _ = network_records(bp.LSTM(2, 3, num_layers=2, bidirectional=True), 6, 3, lengths=[6, 3, 5])
    net.backward(np.ones(net.last_pass.output.shape))
    bp.save_jacobians("j.h5", net.transposed_jacobians())
    assert main([name, "j.h5", "-o", "all.png"]) == 0
    selection = "--layer 0 --inner 1 --direction backward --steps 1:4 --sample 2"
    assert main([name, "j.h5", "-o", "one.svg", *selection.split()]) == 0
    for options in ("--layer 1", "--inner 2", "--steps 6:", "--sample 3"):
        assert main([name, "j.h5", "-o", "p.png", *options.split()]) == 1 and error_line(capsys)
    assert not Path("p.png").exists()
