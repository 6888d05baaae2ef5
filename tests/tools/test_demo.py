"""The demo runs from data to pictures."""

import pytest

from bppsa_cupy.plan import Plan
from bppsa_cupy.records.file import load_jacobians
from bppsa_cupy.tools import demo


@pytest.mark.long
def test_the_demo_writes_its_files(tmp_path, capsys):
    folder = tmp_path / "made"
    assert demo.main(["--iterations", "20", "--device", "host", "--output", str(folder)]) == 0
    assert capsys.readouterr().err == ""
    assert len(list(folder.iterdir())) == 7
    assert Plan.load(folder / "plan.h5").schedules == ("linear", "blelloch", "hybrid")
    assert len(load_jacobians(folder / "jacobians.h5")) == 11
