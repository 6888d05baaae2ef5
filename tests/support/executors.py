"""Devices by name, for tests that run on some of them."""

from __future__ import annotations

import pytest
from emulator.build import compiler
from emulator.device import EmulatedDevice

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.errors import DeviceError


def make_device(name: str) -> Device:
    """The device called "host", "emulated" or "cuda"; where it is missing, skips the test and says why."""
    if name == "emulated":
        if compiler() is None:
            pytest.skip("the emulated device needs g++")
        return EmulatedDevice()
    try:
        return get_device(name)
    except DeviceError as error:
        pytest.skip(str(error))
