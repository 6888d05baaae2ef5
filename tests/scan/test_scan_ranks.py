"""A scan by parts, on ranks in one process: bits, what each reads and takes, and what is refused."""

import numpy as np
import pytest
from counting import CountingDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, small_network
from ranks_in_turn import Exchange
from scan_cases import METHODS, only_own, random_chain, random_partition

import bppsa_cupy as bp
from bppsa_cupy.plan import with_input_gradient
from bppsa_cupy.scan import NumericScan, make_chain, plan_scan
from bppsa_cupy.scan.ranks import RankScan


@settings(max_examples=15)
@given(
    st.integers(1, 12), st.integers(1, 4), st.booleans(), st.sampled_from(METHODS), st.integers(0, 2**31)
)  # fmt: skip
def test_parts_of_a_scan_have_the_bits_of_the_whole(n, size, input_gradient, method, seed):
    """By `bp.scan`, whose other ranks' values, gradient and injections are NaN or not there."""
    rng = np.random.default_rng(seed)
    batch = int(rng.integers(1, 4))
    operands = random_chain(rng, n, batch)
    gradient = rng.standard_normal((operands[0][0].shape[1], batch)).astype(
        rng.choice(["float32", "float64"])
    )
    injections = [
        None if rng.integers(3) == 0 else rng.standard_normal((pattern.shape[0], batch))
        for pattern, _ in operands
    ]
    if batch == 1 and rng.integers(2):
        gradient, injections = gradient[:, 0], [None if e is None else e[:, 0] for e in injections]
    partition = random_partition(rng, n, size) if rng.integers(3) else None
    cut = partition or bp.Partition.equal(n, size)
    chain = make_chain([(pattern, values.ndim == 1) for pattern, values in operands])
    plan = plan_scan(chain, batch_size=batch + 1, partition=cut, device="host")
    options = {"plan": plan, "device": "host", "input_gradient": input_gradient}
    options["injections"] = injections if rng.integers(2) else None
    expected = bp.scan(gradient, operands, method, **options)

    def part(group):
        own = cut.part(group.rank)
        start = gradient if 0 in own else np.full_like(gradient, np.nan)
        return bp.scan(start, only_own(operands, own), method, group=group, partition=partition, **options)

    for rank, got in enumerate(Exchange(size).play(part)):
        for k, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            if min(k, n - 1) in cut.part(rank):
                np.testing.assert_array_equal(ours, theirs, strict=True)
            else:
                assert ours is None


def test_ranks_that_were_asked_for_different_scans_are_refused(rng):
    """Chains, schedules, partitions, gradients or injections that differ."""
    operands = random_chain(rng, 4, 2)
    gradient = rng.standard_normal((operands[0][0].shape[1], 2))
    zeros = [np.zeros((pattern.shape[0], 2)) for pattern, _ in operands]
    shared = [(pattern, values if values.ndim == 1 else values[:, 0]) for pattern, values in operands]
    asked = {"gradient": gradient, "jacobians": operands, "partition": bp.Partition((0, 1, 4))}
    for change in (
        {"method": "linear"}, {"partition": bp.Partition((0, 2, 4))}, {"injections": zeros},
        {"gradient": gradient.astype(np.float32)}, {"jacobians": shared, "gradient": gradient[:, :1]},
    ):  # fmt: skip

        def part(group, change=change):
            given = {**asked, **(change if group.rank else {})}
            with pytest.raises(bp.PlanMismatchError, match="the ranks have"):
                bp.scan(**given, group=group, device="host")

        Exchange(2).play(part)


def test_a_partition_of_other_ranks_is_refused():
    def part(group):
        with pytest.raises(bp.PlanError, match="ranks"):
            bp.scan(
                np.zeros(2),
                [(bp.Pattern.diagonal(2), np.ones(2))],
                group=group,
                partition=bp.Partition((0, 1)),
            )

    Exchange(2).play(part)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"partition": bp.Partition((0, 1))}, bp.PlanError, "a partition was given without a group"),
        ({"group": 3}, bp.ShapeError, "scan got group of int: it takes a bp.Group"),
    ],
)
def test_a_group_that_is_none_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        bp.scan(np.zeros(2), [(bp.Pattern.diagonal(2), np.ones(2))], **options)


# ---- parts of a network's scan ----

CAPACITY, OWNERS = 4, (0, 1, 1, 1, 2, 2)


def network_scan(group, name="blelloch", device=None, **options):
    plan = plan_of(small_network(), batch_size=CAPACITY)
    schedule = with_input_gradient(plan.schedule(0, name))
    given = (device or CountingDevice(), np.dtype(np.float64), plan.chains[0], schedule, CAPACITY)
    return RankScan(group, OWNERS, *given, **options) if group else NumericScan(*given, **options)


@pytest.mark.parametrize("affine", [False, True])
def test_memory_is_checked_before_a_byte_is_taken(affine):
    """What is needed is what is taken where there is enough."""

    def part(group):
        device = CountingDevice()
        scan = network_scan(group, device=device, affine=affine)
        needed = device.taken
        network_scan(group, device=CountingDevice(needed), affine=affine)
        device = CountingDevice(needed - 1)
        words = f"takes {needed} bytes on rank {group.rank} of 3, host has {needed - 1} bytes free"
        with pytest.raises(bp.DeviceError, match=words):
            network_scan(group, device=device, affine=affine)
        assert device.taken == 0
        return scan, needed

    for scan, needed in Exchange(3).play(part):
        own = {(k, k + 1) for k in scan.own}
        held = own.union(*({step.left, step.right, step.out} for step in scan.steps))
        injected = sum(scan.chain_plan.chain.length(end) for begin, end in held if begin)
        assert needed == scan.memory.total_bytes + affine * injected * CAPACITY * 8
