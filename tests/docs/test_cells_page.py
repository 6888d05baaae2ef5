"""docs/cells.md: its examples and commands run, and its script's gradients are autograd's."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import blocks, run_commands

import bppsa_cupy as bp
from bppsa_cupy.cells.definitions import DEFINITIONS, LINEAR_DEFINITIONS
from bppsa_cupy.models.recurrent import CELLS

PAGE = (Path(__file__).parents[2] / "docs" / "cells.md").read_text(encoding="utf-8")
FIRST, SCRIPT, LINEAR, UNITS = blocks(PAGE, "python")


@pytest.fixture(scope="module")
def ran() -> dict[str, Any]:
    """What the script leaves, and under "printed" what it prints."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(SCRIPT, names)
    return {**names, "printed": printed.getvalue()}


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(FIRST, {})
    assert capsys.readouterr().out == "2 4 True\n"


def test_the_example_of_a_linear_cell_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(LINEAR, {})
    assert capsys.readouterr().out == "['weight_ih_l0', 'bias_ih_l0']\n"


def test_the_example_of_cells_without_recurrent_gates_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(UNITS, {})
    affine, other = capsys.readouterr().out.splitlines()
    assert affine == "True ('auto', 'serial', 'chunked') ['weight_ih_l0', 'bias_ih_l0', 'w_l0']"
    assert other.startswith("False ('auto', 'serial', 'newton', 'quasi-newton') ['weight_ih_l0'")


def test_the_page_names_every_built_in_cell() -> None:
    assert all(f'"{name}"' in PAGE for name in (*DEFINITIONS, *LINEAR_DEFINITIONS))
    assert set(CELLS) == {*DEFINITIONS, "rnn"}


@pytest.mark.long
def test_a_script_of_15_lines_trains_a_cell_of_ones_own(ran: dict[str, Any]) -> None:
    assert len(SCRIPT.splitlines()) <= 15
    found = re.fullmatch(r"(\S+) \(20,\)\n", ran["printed"])
    assert float(found[1]) < 1.9 < np.log(10)
    assert not np.allclose(ran["net"].state_dict()["0.alpha_l0"], 0.1, atol=1e-2)


@pytest.mark.long
def test_gradients_of_the_script_are_autograds(ran: dict[str, Any]) -> None:
    net, bits = ran["net"], ran["bits"]
    x, labels = bits.inputs[100:103].astype("float64"), bits.labels[100:103]
    loss, gradient = bp.cross_entropy(net.forward(x), labels)
    net.backward(gradient)
    p = {name: torch.tensor(value, requires_grad=True) for name, value in net.state_dict().items()}
    alpha, h = p["0.alpha_l0"], torch.zeros(3, 20, dtype=torch.float64)
    for t in range(x.shape[1]):
        projected = torch.tensor(x[:, t]) @ p["0.weight_ih_l0"].T + p["0.bias_ih_l0"]
        h = (1 - alpha) * h + alpha * torch.tanh(projected + h @ p["0.weight_hh_l0"].T + p["0.bias_hh_l0"])
    expected = torch.nn.functional.cross_entropy(h @ p["1.weight"].T + p["1.bias"], torch.tensor(labels))
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-12)
    for name, value in p.items():
        wanted = value.grad.numpy()
        found = net.device.to_host(net.gradients[name])
        assert np.linalg.norm(found - wanted) <= 1e-10 * np.linalg.norm(wanted), name


@pytest.mark.long
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch, capsys, ran: dict[str, Any]) -> None:
    """The file's cell is the script's, whose kernels are compiled by now."""
    monkeypatch.chdir(tmp_path)
    head = SCRIPT[: SCRIPT.index("net = ")]
    Path("leaky.py").write_text(f"{head}\n\ndef make():\n    return cell\n", encoding="utf-8")
    run_commands(PAGE)
    out = capsys.readouterr().out
    assert "backward over time: 0 CellLayer l0: " in out and "plan.h5: " in out
