"""A scan's memory is checked before anything is taken, and what is said to fit fits."""

import numpy as np
import pytest
from plan_cases import plan_of, small_network

import bppsa_cupy as bp
from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.plan import Budget, with_input_gradient
from bppsa_cupy.plan.algorithms import linear
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.scan import NumericScan, plan_scan
from bppsa_cupy.scan.maps import IndexMaps


class FullDevice(HostDevice):
    """A host with so many bytes free, whose memory maps are copied to."""

    def __init__(self, free):
        super().__init__()
        self.free = free

    def free_memory(self):
        return self.free


def full_network_scan(free, name, capacity=64, copies=False, input_gradient=True, affine=False, taken=0):
    device = FullDevice(free)
    plan = plan_of(small_network(), batch_size=capacity)
    schedule = plan.schedule(0, name)
    maps = IndexMaps(device)
    maps.copies, maps.bytes = copies, taken
    whole = with_input_gradient(schedule) if input_gradient else schedule
    return NumericScan(device, np.dtype(np.float32), plan.chains[0], whole, capacity, maps, affine)


@pytest.mark.parametrize("copies, affine", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("input_gradient", [False, True])
def test_memory_is_checked_before_a_byte_is_taken(copies, affine, input_gradient):
    options = {"copies": copies, "affine": affine, "input_gradient": input_gradient}
    scan = full_network_scan(2**40, "blelloch", **options)
    budget = Budget(64, 4, input_gradient=input_gradient, indices=copies, affine=affine)
    needed = budget.bytes(scan.chain_plan.sizes, scan.schedule)
    assert full_network_scan(needed, "blelloch", **options)
    with pytest.raises(
        bp.DeviceError, match=f"takes {needed} bytes for a batch of 64.*{needed - 1} bytes free"
    ):
        full_network_scan(needed - 1, "blelloch", **options)


def test_a_scan_that_does_not_fit_allocates_nothing(monkeypatch):
    taken = []
    monkeypatch.setattr(HostDevice, "empty", lambda *arguments: taken.append(arguments))
    with pytest.raises(bp.DeviceError):
        full_network_scan(1000, "blelloch", copies=True)
    assert taken == []


def test_copies_of_maps_that_are_there_are_not_counted_twice():
    scan = full_network_scan(2**40, "blelloch", copies=True)
    needed = Budget(64, 4, input_gradient=True, indices=True).bytes(scan.chain_plan.sizes, scan.schedule)
    assert full_network_scan(needed - 100, "blelloch", copies=True, taken=100)
    with pytest.raises(bp.DeviceError):
        full_network_scan(needed - 101, "blelloch", copies=True, taken=100)


def test_a_plan_for_scans_is_held_to_its_limit_and_to_three_quarters_of_what_is_free():
    """Vectors and values are counted in float64."""
    chain, batch = small_network(), 5
    needed = Budget(batch, 8).bytes(ChainSizes(chain), linear(len(chain)))
    for free in (needed, 10 * needed):
        assert plan_scan(chain, ("linear",), batch_size=batch, memory_limit=needed, device=FullDevice(free))
        with pytest.raises(bp.PlanError, match=f"{needed} bytes"):
            plan_scan(chain, ("linear",), batch_size=batch, memory_limit=needed - 1, device=FullDevice(free))
    enough = -(-4 * needed // 3)
    assert plan_scan(chain, ("linear",), batch_size=batch, device=FullDevice(enough))
    with pytest.raises(bp.PlanError, match=f"{needed} bytes"):
        plan_scan(chain, ("linear",), batch_size=batch, device=FullDevice(enough - 2))
