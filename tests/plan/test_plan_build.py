"""Building plans: chains and their products, schedules that give the serial scan, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, random_chain, small_network
from refusals import assert_refused
from symbolic_oracle import evaluate

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.jacobians.diagonal import ActivationJacobian
from bppsa_cupy.plan import Chain, Element, fingerprint


@settings(max_examples=30)
@given(st.integers(1, 15), st.integers(0, 2**32 - 1), st.data())
def test_planned_products_give_the_serial_scan(n, seed, data):
    """By the definitions of their kinds in NumPy."""
    chain = random_chain(n, seed)
    plan = plan_of(chain, levels=data.draw(st.integers(0, n.bit_length() - 1)))
    chain_plan, generator = plan.chains[0], np.random.default_rng(seed)
    values = {(k, k + 1): generator.standard_normal(e.pattern.nnz) for k, e in enumerate(chain.elements, 1)}
    values[0, 1] = generator.standard_normal(chain.length(1))
    expected = [values[0, 1]]
    for k, element in enumerate(chain.elements, 1):
        expected.append(element.pattern.to_scipy(values[k, k + 1]) @ expected[-1])
    for schedule in chain_plan.schedules.values():
        results = dict(values)
        for step in schedule.steps:
            if step.kind == "mv":
                matrix = chain_plan.pattern(step.right).to_scipy(results[step.right])
                results[step.out] = matrix @ results[step.left]
            else:
                product = chain_plan.product(step)
                made = chain_plan.pattern(step.right).to_scipy() @ chain_plan.pattern(step.left).to_scipy()
                assert chain_plan.pattern(step.out) == product.pattern == Pattern.from_scipy(made)
                results[step.out] = evaluate(product, results[step.right], results[step.left])
        for k in range(1, n + 1):
            np.testing.assert_allclose(results[0, k], expected[k - 1], rtol=1e-10, atol=1e-10)


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from([bp.Sigmoid(), bp.ReLU(), bp.AvgPool2d(2, 3), bp.MaxPool2d(2),
                         bp.Conv2d(1, 1, 3, padding=1)]),
        min_size=2, max_size=6,
    ).filter(lambda layers: sum("Pool" in type(layer).__name__ for layer in layers) < 3),
    st.sampled_from(["auto", 0, 1]), st.integers(1, 3), st.sampled_from([1, 4, 16]),
)  # fmt: skip
def test_small_networks_have_plans_of_the_right_gradient(layers, levels, workers, batch):
    net = bp.Sequential(layers, input_shape=(1, 6, 8), dtype="float64", device="host")
    plan = net.plan(levels=levels, workers=workers, batch_size=batch)
    assert plan.workers == workers
    x = np.random.default_rng(0).normal(size=(batch, 1, 6, 8))
    y = net.forward(x)
    expected = net.backward(y, method="bp", input_gradient=True)
    net.use(plan)
    for method in plan.schedules:
        np.testing.assert_allclose(net.backward(y, method=method, input_gradient=True), expected, atol=1e-12)


def test_chains_of_several_lengths_take_the_levels_they_have():
    plan = plan_of(random_chain(0), random_chain(1), small_network(), levels=2)
    assert [plan.schedule(i, "hybrid").levels for i in range(3)] == [0, 0, 2]
    assert plan.schedules == ("linear", "blelloch", "hybrid")
    assert plan_of(levels=0).schedules == ()


def square(*rows):
    """Of 4 columns, an entry a row."""
    return Pattern((4, 4), np.arange(5), np.array(rows))


P, Q = square(1, 2, 3, 0), square(0, 0, 1, 3)


@pytest.mark.parametrize("order", [(P, P, Q, Q, P, P, P, Q), (Q, Q, Q, P, Q, Q, P, P)])
def test_products_whose_factors_change_places_are_two(order):
    """At one level A·B and B·A, and products of one pattern by others."""
    chain = Chain(tuple(Element(f"{k}", pattern, False) for k, pattern in enumerate(order)))
    plan = plan_of(chain, levels=2)
    for schedule in plan.chains[0].schedules.values():
        for begin, end in schedule.out[schedule.table[:, 4] == 1].tolist():
            product = chain.elements[begin - 1].pattern.to_scipy()
            for element in chain.elements[begin : end - 1]:
                product = element.pattern.to_scipy() @ product
            assert plan.chains[0].pattern((begin, end)) == Pattern.from_scipy(product)


def test_equal_products_are_made_once():
    element = Element("J", Pattern.dense(3, 3), True)
    assert len(plan_of(Chain((element,) * 16), Chain((element,) * 7)).chains[0].products) == 1


# ---- fingerprints ----

CONV = {"type": "Conv2d", "in_channels": 3, "kernel_size": [5, 5]}


def test_the_order_of_fields_is_of_no_meaning_to_a_fingerprint():
    assert fingerprint(CONV) == fingerprint(dict(reversed(CONV.items())))
    assert fingerprint(CONV) != fingerprint({**CONV, "in_channels": 4})


class Shift(bp.SiLU):
    """A layer that says nothing of its pattern: each output is of the input `by` places on."""

    by = 1

    def jacobian(self, input_shape):
        class Shifted(ActivationJacobian):
            def make_pattern(jacobian):
                places = np.arange(jacobian.features)
                return Pattern(
                    (places.size, places.size), [*places, places.size], (places + self.by) % places.size
                )

        return Shifted(*input_shape)


def test_a_layer_of_the_users_whose_pattern_has_changed_needs_another_plan(monkeypatch):
    def network():
        return bp.Sequential([bp.Linear(4, 4), Shift()], input_shape=(4,), device="host")

    plan = network().plan()
    network().use(plan)
    monkeypatch.setattr(Shift, "by", 2)
    with pytest.raises(bp.PlanMismatchError, match="layer 1 Shift"):
        network().use(plan)


# ---- the caller's mistakes ----


def made(**options):
    plan_of(small_network(), **options)


DENSE = Element("a", Pattern.dense(3, 2), True)
LINEAR = plan_of(small_network(), schedules=["linear"])
REFUSED = [
    (lambda: made(schedules=["serial"]), PlanError, "serial", "'linear', 'blelloch', 'hybrid'"),
    (lambda: made(schedules=[]), PlanError, "schedules=", "linear"),
    (lambda: made(schedules="linear"), PlanError, "str", "schedules"),
    (lambda: made(levels="most"), PlanError, "'most'", "integer"),
    (lambda: made(levels=True), PlanError, "levels=True", "integer"),
    (lambda: made(batch_size=0), PlanError, "batch_size=0", "at least 1"),
    (lambda: made(batch_size=2**62), PlanError, f"{2**62}", "at most"),
    (lambda: made(batch_size=2**62, memory_limit=2**70), PlanError, f"{2**62}", "at most"),
    (lambda: made(workers=1.5), PlanError, "workers=1.5", "integer"),
    (lambda: made(memory_limit="1GiB"), PlanError, "'1GiB'", "integer"),
    (lambda: LINEAR.schedule(0, "blelloch"), PlanError, "'blelloch'", "--schedules linear,blelloch"),
    (lambda: Chain((DENSE, DENSE)), ShapeError, "3 rows", "2 columns"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, value, fix", REFUSED)
def test_refused_arguments(call, error, value, fix):
    assert_refused(call, error, value, fix)
