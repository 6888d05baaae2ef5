"""A scan by parts, on ranks in one process: bits, what each reads and takes, and what is refused."""

import numpy as np
import pytest
from counting import CountingDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, small_network
from ranks_in_turn import Exchange
from scan_cases import METHODS, random_chain, random_partition, scan_by_parts

import bppsa_cupy as bp
from bppsa_cupy.plan import with_input_gradient
from bppsa_cupy.scan import NumericScan, make_chain, plan_scan
from bppsa_cupy.scan.numeric import RankScan


@settings(max_examples=15)
@given(
    st.integers(1, 12), st.integers(1, 4), st.booleans(), st.sampled_from(METHODS), st.integers(0, 2**31)
)  # fmt: skip
def test_parts_of_a_scan_have_the_bits_of_the_whole(n, size, input_gradient, method, seed):
    rng = np.random.default_rng(seed)
    batch = int(rng.integers(1, 4))
    operands = random_chain(rng, n, batch)
    gradient = rng.standard_normal((operands[0][0].shape[1], batch)).astype(
        rng.choice(["float32", "float64"])
    )
    cut = random_partition(rng, n, size)
    plan = plan_scan(make_chain([(p, v.ndim == 1) for p, v in operands]), batch_size=batch + 1, device="host")
    options = {"plan": plan, "device": "host", "input_gradient": input_gradient}
    expected = bp.scan(gradient, operands, method, **options)

    def part(group):
        return scan_by_parts(group, cut, plan, method, gradient, operands, input_gradient)

    for rank, got in enumerate(Exchange(size).play(part)):
        for k, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            if min(k, n - 1) in cut.part(rank):
                np.testing.assert_array_equal(ours, theirs, strict=True)
            else:
                assert ours is None


# ---- parts of a network's scan ----

CAPACITY, OWNERS = 4, (0, 1, 1, 1, 2, 2)


def network_scan(group, name="blelloch", device=None, **options):
    plan = plan_of(small_network(), batch_size=CAPACITY)
    schedule = with_input_gradient(plan.schedule(0, name))
    arguments = (device or CountingDevice(), np.dtype(np.float64), plan.chains[0], schedule, CAPACITY)
    return RankScan(group, OWNERS, *arguments, **options) if group else NumericScan(*arguments, **options)


@pytest.mark.parametrize("name", ["linear", "blelloch"])
def test_ranks_read_their_own_elements_and_all_that_are_read(name):
    """The last element is read for the input gradient alone."""
    scans = Exchange(3).play(lambda group: network_scan(group, name))
    for rank, scan in enumerate(scans):
        assert scan.owned == [k for k, owner in enumerate(OWNERS, 1) if owner == rank]
        assert scan.elements_read <= set(scan.owned)
    assert set().union(*(scan.elements_read for scan in scans)) == network_scan(None, name).elements_read


def test_the_memory_that_is_taken_is_the_memory_that_is_told():
    def part(group):
        device = CountingDevice()
        return network_scan(group, device=device), device.taken

    for scan, taken in Exchange(3).play(part):
        assert taken == scan.memory.total_bytes
