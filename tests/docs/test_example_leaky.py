"""docs/examples/leaky_rnn.py and leaky_cell.py: one recurrence twice, with equal exponents."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.long
def test_both_scripts_agree(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    rnn = runpy.run_path(str(EXAMPLES / "leaky_rnn.py"))
    cell = runpy.run_path(str(EXAMPLES / "leaky_cell.py"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["0", "100", "0", "100"]
    assert (tmp_path / "leaky_rnn.png").stat().st_size > 10_000
    assert rnn["loss"] < 0.9 * rnn["x"][-40:-20].mean(0).square().mean()
    np.testing.assert_allclose(cell["exponents"], rnn["exponents"], atol=1e-3)
