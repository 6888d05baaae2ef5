"""VJPs in place of filled entries: which elements they cross, and what they spare."""

from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, random_chain

import bppsa_cupy as bp
from bppsa_cupy.models import lenet5
from bppsa_cupy.plan import Budget, Chain, with_input_gradient
from bppsa_cupy.plan.algorithms import hybrid
from bppsa_cupy.plan.counts import with_vjps
from bppsa_cupy.plan.schedule import up_sweep_levels
from bppsa_cupy.plan.sizes import ChainSizes


def free_elements(schedule):
    """Those that no matrix product reads, and that a vector is multiplied by on their own."""
    steps = schedule.steps
    read = {s for step in steps if step.kind == "mm" for s in (step.left, step.right)}
    return [step.split for step in steps if step.begin == 0 and step.right == (step.split, step.split + 1)
            and step.right not in read]  # fmt: skip


@settings(max_examples=60)
@given(st.integers(2, 8), st.integers(0, 2**31), st.data())
def test_elements_are_crossed_where_a_vjp_takes_no_more_multiply_adds(n, seed, data):
    chain = random_chain(n, seed)
    chain = Chain(
        tuple(
            replace(element, vjp_multiply_adds=data.draw(st.integers(0, 2 * element.pattern.nnz)))
            for element in chain.elements
        )
    )
    levels = data.draw(st.integers(0, up_sweep_levels(n)))
    free = free_elements(with_input_gradient(hybrid(n, levels)))
    fewer = [k for k, e in enumerate(chain.elements, 1) if e.vjp_terms <= e.pattern.nnz]
    assert set(with_vjps(chain, hybrid(n, levels)).vjps) == set(free) & set(fewer)


def test_what_is_crossed_takes_no_room():
    chain = random_chain(6, 3)
    sizes, budget = ChainSizes(chain), Budget(2, 4)
    filled = with_input_gradient(hybrid(6, 1))
    crossed = replace(filled, vjps=tuple(sorted(free_elements(filled))))
    assert crossed.vjps and crossed.digest != filled.digest
    assert budget.bytes(sizes, crossed) < budget.bytes(sizes, filled)
    assert sizes.index_bytes(crossed)[-1] < sizes.index_bytes(filled)[-1]


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
