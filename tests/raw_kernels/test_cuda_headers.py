"""Functions of CUDA headers: tanh and the logistic function within 4 ulp, whatever the GPU's approximations
do within their bounds; the parts of a work item."""

from __future__ import annotations

import pytest
from kernel_probes import ORACLES, check_activation, check_split

from bppsa_cupy.devices import Device

#: How far the reciprocal and 2^x lie from the rounded values, in ulp: PTX gives 1 and 2.
DEVIATIONS = ((0, 0), (1, 2), (1, -2), (-1, 2), (-1, -2))


@pytest.mark.parametrize("reciprocal, exp2", DEVIATIONS)
@pytest.mark.parametrize("function", ORACLES)
def test_within_4_ulp(function: str, reciprocal: int, exp2: int, emulated: Device) -> None:
    check_activation(emulated, function, reciprocal, exp2)


def test_entry_and_sample_of_any_item(emulated: Device) -> None:
    check_split(emulated)
