"""`bppsa-jacobians spectrum|norms|lyapunov`: what is drawn, what is chosen, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from chain_cases import network_records, records_of
from marks import some
from seals import without_seal

import bppsa_cupy as bp
from bppsa_cupy.tools.jacobians import OVER_TIME, main
from bppsa_cupy.tools.pictures import picture_file
from bppsa_cupy.tools.pictures.chain_pictures import plot_lyapunov, plot_norms, plot_spectrum

pytest.importorskip("matplotlib", reason="pictures need matplotlib")


@pytest.fixture
def drawn(monkeypatch):
    """A function that draws by one of the three, and returns the panels: {label: line} of each."""

    def draw(plot, records):
        figures = []
        monkeypatch.setattr(picture_file, "save_figure", lambda figure, path, **_: figures.append(figure))
        plot(records.chains(), Path("p.png"))
        return [
            [np.asarray(line.get_ydata(), float) for line in axes.lines]
            for axes in figures[0].axes
            if axes.lines
        ]

    return draw


@pytest.fixture(scope="module")
def records():
    """Of a bidirectional LSTM of two inner layers after a way back, with samples that end early."""
    net, _ = network_records(bp.LSTM(2, 3, num_layers=2, bidirectional=True), 6, 3, lengths=[6, 3, 5])
    net.backward(np.ones(net.last_pass.output.shape))
    return net.transposed_jacobians()


@pytest.fixture
def file(records, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bp.save_jacobians("j.h5", records)
    return "j.h5"


# ---- what is drawn ----


def test_the_spectrum_is_the_median_of_the_samples_that_are_there(records, drawn):
    chain = records.where(inner=0, direction="forward")
    ((*lines, level),) = drawn(plot_spectrum, chain)
    values = bp.singular_values(chain)
    expected = np.array([np.median(values[t, np.array([6, 3, 5]) > t], axis=0) for t in range(6)])
    np.testing.assert_allclose(10 ** np.array(lines[::-1]).T, expected, rtol=1e-12)
    assert not level.any()


def test_norms_are_of_each_sample_up_to_its_end_and_of_the_loss(records, drawn):
    chain = records.where(inner=1, direction="forward")
    ((*each, loss),) = drawn(plot_norms, chain)
    logs = bp.log_gradient_norms(chain)
    for sample, (line, length) in enumerate(zip(each, [6, 3, 5], strict=True)):
        np.testing.assert_allclose(line[:length] * np.log(10), logs[:length, sample], atol=1e-12)
        assert np.isnan(line[length:]).all()
    np.testing.assert_allclose(10**loss, [record.gradient_norm for record in chain], rtol=1e-12)


def test_norms_have_a_median_where_all_samples_are_whole(drawn):
    records = records_of(np.random.default_rng(0).standard_normal((5, 3, 2, 2)))
    ((*_, middle),) = drawn(plot_norms, records)
    logs = bp.log_gradient_norms(records) / np.log(10)
    np.testing.assert_allclose(middle, np.median(logs, axis=1), atol=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_exponents_settle_to_those_of_the_whole_walk(records, drawn, direction):
    chain = records.where(inner=1, direction=direction).sample(2)
    (*running, _), (each, middle, _) = drawn(plot_lyapunov, chain)
    exponents = bp.lyapunov_exponents(chain)[0]
    np.testing.assert_allclose([line[4] for line in running[::-1]], exponents, rtol=1e-12)
    assert np.isnan([line[5] for line in running]).all()
    np.testing.assert_array_equal(each, exponents)
    np.testing.assert_array_equal(middle, exponents)
    first = chain.where(steps=0 if direction == "forward" else 4)
    np.testing.assert_allclose(
        sorted(line[0] for line in running), sorted(bp.lyapunov_exponents(first)[0]), rtol=1e-12
    )


@pytest.mark.parametrize("plot", [plot_spectrum, plot_norms, plot_lyapunov])
@pytest.mark.parametrize(
    "jacobians",
    [np.zeros((4, 2, 3, 3)), np.full((1, 1, 1, 1), 0.5), np.tile(np.diag([9.0, 0]), (200, 1, 1, 1)),
     np.tile(np.eye(2), (3, 2, 1, 1)), np.random.default_rng(0).standard_normal((3, 40, 40, 40))],
    ids=["zeros", "one", "long", "identity", "wide"],
)  # fmt: skip
def test_any_chain_is_drawn(tmp_path, plot, jacobians):
    plot(records_of(jacobians).chains(), tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


# ---- what is chosen ----


@pytest.mark.parametrize("command", OVER_TIME)
def test_the_commands_write_pictures(file, command):
    assert main([command, file, "-o", "all.png"]) == 0
    options = ["--layer", "0", "--inner", "1", "--direction", "backward", "--steps", "1:4", "--sample", "2"]
    assert main([command, file, "-o", "one.svg", *options]) == 0
    assert Path("all.png").read_bytes()[:4] == b"\x89PNG"
    text = Path("one.svg").read_text(encoding="utf-8")
    assert text.count('id="axes_') == {"spectrum": 2, "norms": 1, "lyapunov": 3}[command]  # with bars


@pytest.mark.parametrize(
    "command", some("spectrum", long=[command for command in OVER_TIME if command != "spectrum"])
)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layer", "1"], "no record has layer=1: those there are have 0"),
        (["--inner", "2"], "no record has inner=2: those there are have 0, 1"),
        (["--steps", "6:"], "there are steps 0 to 5"),
        (["--sample", "3"], "sample 3 was asked for, the record holds samples 0 to 2"),
        (["-o", "none/p.png"], "none/p.png cannot be written"),
    ],
)
def test_what_is_not_there_is_one_line(file, capsys, command, options, message):
    assert main([command, file, "-o", "p.png", *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not Path("p.png").exists()


def test_files_without_recurrent_layers_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net = bp.Sequential([bp.Linear(3, 2)], (3,), device="host")
    net.forward(np.ones((1, 3), np.float32))
    bp.save_jacobians("j.h5", net)
    assert main(["norms", "j.h5", "-o", "p.png"]) == 1
    assert "j.h5 has no recurrent layer: it has JacobianRecords(0 Linear)" in capsys.readouterr().err


def test_too_many_chains_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, records = network_records(bp.RNN(1, 1, num_layers=9), 1, 1)
    bp.save_jacobians("j.h5", records)
    assert main(["norms", "j.h5", "-o", "p.png"]) == 1
    assert "there are 9 chains of steps" in capsys.readouterr().err


def test_files_without_a_seal_take_an_option(file, capsys):
    without_seal(Path(file))
    assert main(["norms", file, "-o", "p.png"]) == 1
    assert "with --unsealed" in capsys.readouterr().err
    assert main(["norms", file, "-o", "p.png", "--unsealed"]) == 0
