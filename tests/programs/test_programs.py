"""Whole PyTorch programs, unconverted and converted: losses, parameters after some steps, and no warning."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from bppsa_cupy.tools.benchmarks.programs import Program, Training, make_programs  # noqa: E402

PROGRAMS = list(make_programs())
QUICK = "neurogym"


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, id=p.name, marks=[] if p.name.startswith(QUICK) else pytest.mark.long)
     for p in PROGRAMS],
)  # fmt: skip
def test_a_converted_program_trains_as_before(program: Program) -> None:
    trained = {}
    for converted in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            training = Training(program, converted)
            torch.manual_seed(1)
            losses = [training.step() for _ in range(5)]
        trained[converted] = losses, training.model
    (losses, model), (ours, converted) = trained[False], trained[True]
    assert ours == pytest.approx(losses, rel=1e-5)
    assert losses[-1] < losses[0] or program.name.startswith("CTRNN with noise")
    if program.replace is None:
        assert list(converted.state_dict()) == list(model.state_dict())
    before = sorted(model.parameters(), key=lambda p: p.double().norm().item())
    after = sorted(converted.parameters(), key=lambda p: p.double().norm().item())
    for expected, actual in zip(before, after, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=2e-5)
