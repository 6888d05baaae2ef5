"""The command line that writes, lists and draws Jacobians."""

import json

import numpy as np
import pytest
import scipy.sparse
from seals import without_seal

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.models import build_model
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.tools.jacobians import describe, main
from bppsa_cupy.tools.pictures import jacobian_picture, picture_file
from bppsa_cupy.tools.pictures.jacobian_picture import plot_records, raster
from bppsa_cupy.training.checkpoint import Checkpoint, save_checkpoint

MODEL = """
import bppsa_cupy as bp

def make(input_shape=(6,), **options):
    layers = [bp.Linear(6, 5), bp.ReLU(), bp.Linear(5, 3)]
    return bp.Sequential(layers, input_shape=input_shape, **options)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model, data, and as the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    x = np.random.default_rng(0).normal(size=(20, 6))
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(20) % 3)
    return tmp_path


def dump(*options):
    return main(["dump", "model.py:make", "--data", "data.npz", "--device", "host", "-o", "j.h5", *options])


def record(shape=(6, 4), batch=3, layer=2, **fields):
    generator = np.random.default_rng(0)
    pattern = Pattern.from_scipy(scipy.sparse.random_array(shape, density=0.4, rng=generator))
    data = generator.integers(0, 3, (pattern.nnz, batch)).astype(np.float32)
    return JacobianRecord(layer, "MaxPool2d", pattern, data, **fields)


# ---- dump ----


def test_dump_writes_the_jacobians_of_the_first_batch(folder, capsys):
    assert dump("--batch-size", "4") == 0
    device, summary = capsys.readouterr().out.splitlines()
    assert device == "device host, float32"
    assert summary.startswith("j.h5: 3 Jacobians")
    first, relu, last = load_jacobians("j.h5")
    network = build_model("model.py:make", seed=0, device="host")
    weights = network.state_dict()
    np.testing.assert_array_equal(first.to_scipy().toarray(), weights["0.weight"].T)
    np.testing.assert_array_equal(last.to_scipy().toarray(), weights["2.weight"].T)
    assert (first.batch, relu.batch, relu.pattern) == (None, 4, Pattern.diagonal(5))
    assert all(one.gradient_norm > 0 for one in (first, relu, last))


def test_dump_of_a_sample_is_that_sample_of_the_batch(folder):
    assert dump("--batch-size", "4", "--dtype", "float64") == 0
    relu = load_jacobians("j.h5")[1]
    assert dump("--batch-size", "4", "--dtype", "float64", "--sample", "2", "--compress") == 0
    alone = load_jacobians("j.h5")
    assert [one.data.ndim for one in alone] == [1, 1, 1]
    assert [one.sample for one in alone] == [None, 2, None]
    np.testing.assert_array_equal(alone[1].data, relu.data[:, 2])


def test_dump_takes_parameters_from_a_checkpoint(folder):
    network = build_model("model.py:make", seed=9, device="host")
    save_checkpoint("c.h5", Checkpoint(network.describe(), "float32", network.state_dict()))
    assert dump("--checkpoint", "c.h5") == 0
    np.testing.assert_array_equal(
        load_jacobians("j.h5")[0].to_scipy().toarray(), network.state_dict()["0.weight"].T
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size", "4", "--sample", "4"], "--sample 4 was asked for: the batch has samples 0 to 3"),
        (["--checkpoint", "none.h5"], "none.h5 does not exist"),
        (["--data", "none"], "data 'none' does not exist"),
        (["-o", "no/folder.h5"], "no/folder.h5 cannot be written"),
    ],
)
def test_stated_errors_are_one_line(folder, capsys, options, message):
    assert dump(*options) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_checkpoint_of_another_network_is_refused(folder, capsys):
    network = build_model("model.py:make", seed=9, device="host", dtype="float64")
    save_checkpoint("c.h5", Checkpoint(network.describe(), "float64", network.state_dict()))
    assert dump("--checkpoint", "c.h5") == 1
    assert "dtype float64 in the checkpoint, float32 in the network" in capsys.readouterr().err


# ---- show ----


def test_show_counts_stored_zeros():
    pattern = Pattern.diagonal(4)
    data = np.array([[0, 1], [2, 3], [0, 0], [4, np.nan]], np.float32)
    row = describe(JacobianRecord(1, "ReLU", pattern, data))
    assert row["guaranteed_sparsity"] == 0.75
    assert row["actual_sparsity"] == 1 - 5 / 32
    assert row["bytes"] == 8 * 4 + 4 * 4 + 5 * 4


def test_show_prints_a_row_a_record(folder, capsys):
    save_jacobians("j.h5", [record(gradient_norm=0.5), record(layer=3, direction="backward", step=7)])
    assert main(["show", "j.h5"]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert len(head) == len(first) == len(second)
    assert first.startswith("2 MaxPool2d ")
    assert first.endswith("5.0000e-01")
    assert second.startswith("3 MaxPool2d step 7 backward")
    assert main(["show", "j.h5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["records"]
    assert rows == [describe(one) for one in load_jacobians("j.h5")]


def test_files_without_a_seal_take_an_option(folder, capsys):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    save_jacobians("j.h5", [record()])
    without_seal("j.h5")
    for command in (["show", "j.h5"], ["plot", "j.h5", "-o", "a.png"]):
        assert main(command) == 1
        assert "with --unsealed" in capsys.readouterr().err
        assert main([*command, "--unsealed"]) == 0


def test_show_of_no_records(folder, capsys):
    save_jacobians("j.h5", [])
    assert main(["show", "j.h5"]) == 0
    assert capsys.readouterr().out.startswith("layer")


# ---- plot ----


def dense_raster(one, sample, rows, columns, step):
    """The picture from dense matrices, element by element."""
    stored = one.pattern.to_scipy().toarray() > 0
    nonzero = one.to_scipy(sample).toarray() != 0
    kinds = (stored.astype(np.uint8) + nonzero)[rows[0] : rows[1], columns[0] : columns[1]]
    return [
        [kinds[y : y + step[0], x : x + step[1]].max() for x in range(0, kinds.shape[1], step[1])]
        for y in range(0, kinds.shape[0], step[0])
    ]


@pytest.mark.parametrize(("dots", "step"), [(100, (1, 1)), (10, (3, 4)), (1, (30, 37))])
@pytest.mark.parametrize("entries", [1, 50, 10**6])
def test_a_dot_shows_the_strongest_of_its_elements(monkeypatch, dots, step, entries):
    monkeypatch.setattr(jacobian_picture, "DOTS", dots)
    monkeypatch.setattr(jacobian_picture, "ENTRIES", entries)
    one = record((30, 37))
    found, window, found_step = raster(one, sample=1)
    assert (window, found_step) == ((0, 30, 0, 37), step)
    np.testing.assert_array_equal(found, dense_raster(one, 1, (0, 30), (0, 37), step))


def test_a_window_is_cropped():
    one = record((30, 37))
    found, window, _ = raster(one, (3, 21), (None, 5))
    assert window == (3, 21, 0, 5)
    np.testing.assert_array_equal(found, dense_raster(one, 0, (3, 21), (0, 5), (1, 1)))
    for rows, columns in (((0, 31), (0, 1)), ((5, 5), (0, 1)), ((0, 1), (-1, 3)), ((0, 1), (36, 38))):
        with pytest.raises(ShapeError, match="were asked for, the matrix has"):
            raster(one, rows, columns)


def test_plot_draws_the_three_colours(folder):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pictures need matplotlib")
    data = np.array([0, 1, 2, 0], np.float32)
    plot_records([JacobianRecord(0, "ReLU", Pattern.diagonal(4), data)], folder / "p.png", show="zeros")
    pixels = (pyplot.imread(folder / "p.png")[..., :3] * 255).round().astype(int).reshape(-1, 3)
    counts = [
        (pixels == [int(colour[k : k + 2], 16) for k in (1, 3, 5)]).all(1).sum()
        for colour in jacobian_picture.COLOURS
    ]
    guaranteed, possible, nonzero = counts
    assert guaranteed > 5 * nonzero
    assert 0.7 < possible / nonzero < 1.4


@pytest.mark.parametrize(("shape", "show", "expected"), [
    ((64, 64), "auto", True), ((65, 3), "auto", False), ((65, 3), "values", True), ((4, 4), "zeros", False),
])  # fmt: skip
def test_small_ones_are_drawn_by_value(folder, monkeypatch, shape, show, expected):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    figures = []
    monkeypatch.setattr(picture_file, "save_figure", lambda figure, path, **_: figures.append(figure))
    one = record(shape)
    plot_records([one], folder / "p.png", sample=1, show=show)
    panel, *bars = figures[0].axes
    assert len(bars) == expected and len(panel.images) == 1 + expected
    if expected:
        values, zeros = (image.get_array() for image in panel.images)
        stored = one.pattern.to_scipy().toarray() > 0
        np.testing.assert_array_equal(np.ma.filled(values, np.nan), one.to_scipy(1).toarray())
        np.testing.assert_array_equal(np.ma.getmaskarray(zeros), stored)
        largest = np.abs(one.data[:, 1]).max()
        assert panel.images[0].get_clim() == (-largest, largest)


def test_values_that_are_not_finite_and_large_windows(folder):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    data = np.array([[np.nan], [np.inf], [0]])
    plot_records([JacobianRecord(0, "ReLU", Pattern.diagonal(3), data)], folder / "p.png")
    wide = JacobianRecord(0, "ReLU", Pattern.diagonal(500), np.ones(500))
    with pytest.raises(ShapeError, match=r"the values of 500 × 500 elements .* takes 480 × 480: crop"):
        plot_records([wide], folder / "p.png", show="values")
    plot_records([wide], folder / "p.png", show="values", rows=(0, 100), columns=(None, 480))


def test_plot_chooses_layers_and_steps(folder, capsys):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    save_jacobians("j.h5", [record(), record(layer=3), record(layer=3, step=1)])
    assert main(["plot", "j.h5", "-o", "a.png"]) == 0
    assert main(["plot", "j.h5", "-o", "b.png", "--layer", "3", "--step", "1", "--rows", "1:4"]) == 0
    assert (folder / "a.png").read_bytes()[:4] == (folder / "b.png").read_bytes()[:4] == b"\x89PNG"
    for options, message in (
        (["--layer", "5"], "has no layer 5 at step 0: it has [2, 3]"),
        (["--step", "9"], "has 0 Jacobians at step 9"),
        (["--sample", "3"], "sample 3 was asked for, the record holds samples 0 to 2"),
        (["--columns", "2:9"], "columns 2:9 were asked for, the matrix has 4 columns"),
    ):
        assert main(["plot", "j.h5", "-o", "c.png", *options]) == 1
        assert message in capsys.readouterr().err
    assert not (folder / "c.png").exists()


def test_usage_errors_exit_with_2(folder):
    for arguments in ([], ["show"], ["plot", "j.h5", "-o", "a.png", "--rows", "a:b"], ["dump", "lenet5"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
