"""VJPs in place of filled entries: the choice against all choices, and what they spare."""

from dataclasses import replace
from itertools import chain as joined
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, random_chain

import bppsa_cupy as bp
from bppsa_cupy.models import lenet5
from bppsa_cupy.plan import Budget, with_input_gradient
from bppsa_cupy.plan.algorithms import hybrid
from bppsa_cupy.plan.cost import preparation_seconds, scan_seconds, with_vjps
from bppsa_cupy.plan.cost_model import CostModel, Rate
from bppsa_cupy.plan.schedule import up_sweep_levels
from bppsa_cupy.plan.sizes import ChainSizes


def models():
    """Of machines whose kinds of work differ in speed."""
    rate = st.sampled_from([1.0, 3.0, 10.0, 100.0]).map(lambda speed: Rate(speed, speed))
    rates = st.fixed_dictionaries({kind: rate for kind in ("csr_mv", "vjp", "fill", "transpose")})
    return st.builds(CostModel, st.just("made"), rate, st.just(0.25), st.sampled_from([0.0, 0.5]), rates)


def free_elements(schedule):
    """Those that no matrix product reads, and that a vector is multiplied by on their own."""
    steps = schedule.steps
    read = {s for step in steps if step.kind == "mm" for s in (step.left, step.right)}
    return [step.split for step in steps if step.begin == 0 and step.right == (step.split, step.split + 1)
            and step.right not in read]  # fmt: skip


@settings(max_examples=60)
@given(st.integers(0, 6), st.integers(0, 2**31), st.integers(1, 3), models(), st.data())
def test_no_other_choice_is_quicker(n, seed, batch, model, data):
    chain, budget = random_chain(n, seed), Budget(batch, 4, 1, model)
    levels = data.draw(st.integers(0, up_sweep_levels(n)))
    schedule, sizes = with_input_gradient(hybrid(n, levels)), ChainSizes(chain)
    found, free = with_vjps(sizes, hybrid(n, levels), budget), free_elements(schedule)
    assert set(found.vjps) <= set(free)
    if n < 2:
        return
    every = joined.from_iterable(combinations(sorted(free), count) for count in range(len(free) + 1))
    least = min(scan_seconds(sizes, replace(schedule, vjps=one), budget) for one in every)
    assert scan_seconds(sizes, with_input_gradient(found), budget) == pytest.approx(least)


def test_what_is_crossed_takes_no_room_and_no_filling():
    chain = random_chain(6, 3)
    sizes, budget = ChainSizes(chain), Budget(2, 4, 1, CostModel("made", Rate(1.0, 1.0), 0.0, 0.0))
    filled = with_input_gradient(hybrid(6, 1))
    crossed = replace(filled, vjps=tuple(sorted(free_elements(filled))))
    assert crossed.vjps and crossed.digest != filled.digest
    assert budget.bytes(sizes, crossed) < budget.bytes(sizes, filled)
    assert preparation_seconds(chain, budget, crossed) < preparation_seconds(chain, budget, filled)
    assert sizes.index_bytes(crossed)[-1] < sizes.index_bytes(filled)[-1]


@pytest.mark.parametrize("batch", [1, 16])
def test_a_computed_schedule_with_vjps_is_predicted_no_slower_than_any_method(batch):
    net = lenet5(dtype="float32", device="host")
    seconds = net.plan(batch_size=batch).predict(batch, "host").seconds
    assert seconds["hybrid"] <= min(seconds["linear"], seconds["blelloch"])
    assert seconds["hybrid"] <= 1.1 * seconds["bp"]


def test_other_workers_and_chains_of_no_layers():
    net = lenet5(dtype="float32", device="host")
    assert all(not s.vjps for s in plan_of(random_chain(5)).chains[0].schedules.values())
    for levels in (0, 2):
        (chain,) = net.plan(batch_size=2, workers=2, levels=levels).chains
        assert chain.schedules["hybrid"].levels == levels and not chain.schedules["linear"].vjps
        assert np.isin([s.split for s in chain.schedules["hybrid"].steps if s.kind == "vjp"],
                       free_elements(chain.schedules["hybrid"])).all()  # fmt: skip


@settings(max_examples=50)
@example([bp.Sigmoid(), bp.AvgPool2d(2, 3), bp.ReLU(), bp.ReLU()], 1, 1, 4)
@example([bp.Sigmoid(), bp.AvgPool2d(2, 3), bp.ReLU(), bp.ReLU()], "auto", 2, 4)
@given(
    st.lists(
        st.sampled_from([bp.Sigmoid(), bp.ReLU(), bp.AvgPool2d(2, 3), bp.AvgPool2d(1, 2), bp.MaxPool2d(2),
                         bp.Conv2d(1, 1, 3, padding=1)]),
        min_size=2, max_size=6,
    ).filter(lambda layers: sum("Pool" in type(layer).__name__ for layer in layers) < 3),
    st.sampled_from(["auto", 0, 1]), st.integers(1, 3), st.sampled_from([1, 4, 16]),
)  # fmt: skip
def test_small_networks_have_plans_of_the_right_gradient(layers, levels, workers, batch):
    net = bp.Sequential(layers, input_shape=(1, 6, 8), device="host")
    plan = net.plan(levels=levels, workers=workers, batch_size=batch)
    (chain,), budget = plan.chains, Budget(batch, 4, workers)
    hybrid_bytes = budget.bytes(ChainSizes(chain.chain), chain.schedules["hybrid"])
    filled = replace(chain.schedules["hybrid"], vjps=())
    assert hybrid_bytes <= budget.bytes(ChainSizes(chain.chain), filled)
    x = np.random.default_rng(0).normal(size=(batch, 1, 6, 8)).astype("float32")
    y = net.forward(x)
    expected = net.backward(y, method="bp", input_gradient=True)
    net.use(plan)
    np.testing.assert_allclose(net.backward(y, method="hybrid", input_gradient=True), expected, atol=1e-5)
