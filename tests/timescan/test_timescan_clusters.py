"""Passes over time by thread-block clusters: which layers go by them; CudaDevice on the stand-in for CuPy."""

from __future__ import annotations

import cupy_stub
import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels.kernel import Layout
from bppsa_cupy.timescan import serial

SMALL = Layout(32, 4, 8, 2, 0, 2)


# ---- which way ----


@pytest.fixture
def clustered(stub: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    """The stand-in, and networks of all sizes that go by clusters."""
    monkeypatch.setattr(serial, "serial_ways", lambda *_: ["blocks"])
    monkeypatch.setattr(serial, "best_layout", lambda *_: SMALL)
    monkeypatch.setattr(serial, "serial_way", lambda *_: "clusters 2")
    return stub


# ---- passes ----


def passes(device: Device) -> tuple[dict[str, np.ndarray], list[str]]:
    """Output and gradients of a network with a recurrent layer, and the ways it went."""
    layers = bp.GRU(3, 20), bp.Linear(20, 2)
    net = bp.Sequential(layers, input_shape=(4, 3), dtype="float64", seed=0, device=device)
    y = net.forward(np.random.default_rng(0).standard_normal((3, 4, 3)))
    net.backward(device.asarray(np.ones(y.shape)), method="bp")
    results = {name: device.to_host(g) for name, g in net.gradients.items()} | {"output": device.to_host(y)}
    return results, [net.last_pass.layers[0].forward_ways[0], net.last_backward.backward_ways[0]]


def test_a_layer_goes_by_clusters_and_says_so(clustered: CudaDevice) -> None:
    ours, ways = passes(clustered)
    assert all("by clusters of 2 blocks" in way for way in ways), ways
    assert clustered.launched["gru_forward"] == clustered.launched["gru_backward"] == 1
    for name, expected in passes(get_device("host"))[0].items():
        assert_close(ours[name], expected, length=2000, label=name)


def test_a_launch_that_is_refused_is_made_another_way(
    clustered: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupy_stub.Function, "refuses_clusters", True)
    ours, ways = passes(clustered)
    assert not any("clusters" in way for way in ways), ways
    for name, expected in passes(get_device("host"))[0].items():
        assert_close(ours[name], expected, length=2000, label=name)
