"""Whole PyTorch programs, unconverted and converted: losses, parameters after some steps, and no warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from marks import some_rows

torch = pytest.importorskip("torch")

from bppsa_cupy.tools.benchmarks.programs import Program, Training, make_programs  # noqa: E402

PROGRAMS = list(make_programs())
QUICK = "neurogym"


@pytest.fixture
def default_dtype() -> Iterator[None]:
    """The dtype of new tensors is afterwards what it was."""
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("default_dtype")
@pytest.mark.parametrize(
    "program, dtype",
    some_rows(
        *((program, torch.float64) for program in PROGRAMS if program.name.startswith(QUICK)),
        long=[(program, torch.float32) for program in PROGRAMS],
    ),
    ids=lambda value: getattr(value, "name", None),
)
def test_a_converted_program_trains_as_before(program: Program, dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    steps = 2 if "T=999" in program.name else 5  # the unconverted loop takes seconds per step
    trained = {}
    for converted in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            training = Training(program, converted)
            torch.manual_seed(1)
            losses = [training.step() for _ in range(steps)]
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
