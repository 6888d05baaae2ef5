"""Building plans: every schedule's products are there, sizes are checked first, errors name the fix."""

import io
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import general_chains, plan_of, random_chain, small_network
from symbolic_oracle import evaluate

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Partition, Plan, with_input_gradient
from bppsa_cupy.plan.algorithms import hybrid
from bppsa_cupy.scan import NumericScan


def scan_by_plan(chain_plan, name, values, start):
    """v(1), …, v(n) through the planned products, by their definitions in NumPy."""
    data = {(k, k + 1): array for k, array in enumerate(values, 1)}
    data[0, 1] = start
    for step in chain_plan.schedules[name].steps:
        if step.kind == "mv":
            matrix = chain_plan.pattern(*step.right).to_scipy(data[step.right])
            data[step.out] = matrix @ data[step.left]
        else:
            data[step.out] = evaluate(chain_plan.product(step), data[step.right], data[step.left])
    return [data[0, k] for k in range(1, len(values) + 1)]


@settings(max_examples=30)
@given(st.integers(1, 15), st.integers(0, 2**32 - 1), st.data())
def test_planned_products_give_the_serial_scan(n, seed, data):
    chain = random_chain(n, seed)
    levels = data.draw(st.integers(0, n.bit_length() - 1))
    plan = plan_of(chain, levels=levels)
    generator = np.random.default_rng(seed)
    values = [generator.standard_normal(e.pattern.nnz) for e in chain.elements]
    v = generator.standard_normal(chain.length(1))
    expected = [v]
    for element, array in zip(chain.elements, values, strict=True):
        expected.append(element.pattern.to_scipy(array) @ expected[-1])
    for name in ("linear", "blelloch", "hybrid"):
        for actual, wanted in zip(scan_by_plan(plan.chains[0], name, values, v), expected, strict=False):
            np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-10)


@settings(max_examples=25)
@given(st.integers(1, 14), st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans())
def test_computed_schedules_run_and_give_the_serial_scan(n, seed, workers, affine):
    chain = random_chain(n, seed)
    plan = plan_of(chain, workers=workers, schedules=["hybrid"])
    schedule = with_input_gradient(plan.schedule(0, "hybrid"))
    scan = NumericScan(get_device("host"), np.dtype("float64"), plan.chains[0], schedule, 4, affine=affine)
    generator = np.random.default_rng(seed)
    batch = 3
    vectors = [generator.standard_normal((chain.length(1), batch))]
    scan.vector(1, batch)[...] = vectors[0]
    for k, element in enumerate(chain.elements, 1):
        values = generator.standard_normal((element.pattern.nnz, 1 if element.shared else batch))
        if k in scan.elements_read:
            scan.element(k, batch)[...] = values[:, 0] if element.shared else values
        samples = [element.pattern.to_scipy(values[:, s % values.shape[1]]) for s in range(batch)]
        products = [samples[s] @ vectors[-1][:, s] for s in range(batch)]
        vectors.append(np.stack(products, axis=1))
        if affine:
            injected = generator.standard_normal(vectors[-1].shape)
            scan.injection(k, batch)[...] = injected
            vectors[-1] += injected
    scan.run(batch)
    for k, expected in enumerate(vectors, 1):
        np.testing.assert_allclose(scan.vector(k, batch), expected, rtol=1e-9, atol=1e-9)


def test_a_schedule_that_is_not_there_names_the_flag():
    with pytest.raises(PlanError, match="--schedules linear,blelloch"):
        plan_of(small_network(), schedules=["linear"]).schedule(0, "blelloch")


def test_levels_of_the_hybrid():
    assert plan_of(small_network(), levels=1).schedule(0, "hybrid").levels == 1
    steps = plan_of(small_network(), levels=1).schedule(0, "hybrid").steps
    assert [s.out for s in steps] == [s.out for s in hybrid(6, 1).steps]


def test_several_chains_of_several_lengths():
    plan = plan_of(random_chain(0), random_chain(1), small_network(), levels=2)
    assert [plan.schedule(i, "hybrid").levels for i in range(3)] == [0, 0, 2]
    assert plan.schedules == ("linear", "blelloch", "hybrid")


def test_no_chain_at_all():
    assert plan_of(levels=0).schedules == ()
    with pytest.raises(PlanError, match="takes 0 to 0, or 'auto'"):
        plan_of(levels=1)


def test_workers_are_numbered_below_their_count():
    assert plan_of(small_network()).workers == 1
    plan = plan_of(small_network(), workers=2)
    assert plan.workers == 2
    workers = {s.worker for s in plan.schedule(0, "blelloch").steps}
    assert workers <= {0, 1}


# ---- a bar ----


class Terminal(io.StringIO):
    """What is written to a terminal, or not to one."""

    def __init__(self, is_one):
        super().__init__()
        self.isatty = lambda: is_one


@pytest.mark.parametrize(("is_terminal", "progress"), [(True, True), (True, False), (False, True)])
def test_a_bar_is_shown_on_a_terminal_where_it_is_asked_for(is_terminal, progress, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal(is_terminal))
    plan_of(general_chains()[0], progress=progress)
    written = sys.stderr.getvalue()
    assert all(
        (f"{what}: 100%" in written) == (is_terminal and progress) for what in ("counting", "products")
    )


# ---- the caller's mistakes ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedules": ["serial"]}, "there are linear, blelloch, hybrid"),
        ({"schedules": []}, "there are linear"),
        ({"levels": 3}, "takes 0 to 2, or 'auto'"),
        ({"levels": "most"}, "takes 0 to 2, or 'auto'"),
        ({"batch_size": 0}, "batch_size=0: .* at least 1"),
        ({"batch_size": 2.5}, r"plan got batch_size=2\.5: it takes an integer of at least 1"),
        ({"batch_size": 2**62}, f"a batch of {2**62} was asked for: .* values a sample, so it takes at most"),
        ({"batch_size": 2**62, "memory_limit": 2**70}, f"a batch of {2**62} was asked for"),
        ({"batch_size": 2**70}, "batch_size=.* and at most"),
        ({"workers": 0}, "at least 1"),
        ({"workers": 1.5}, "workers=1.5: .* integer"),
        ({"workers": True}, "workers=True: .* integer"),
        ({"memory_limit": "1GiB"}, "memory_limit='1GiB': it takes an integer of at least 0"),
        ({"memory_limit": -1}, "memory_limit=-1: .* at least 0"),
        ({"partition": (0, 3)}, r"plan got partition=\(0, 3\): it takes a bp.Partition"),
        ({"levels": True}, "levels True .* takes 0 to 2"),
        ({"levels": 1.0}, "takes 0 to 2"),
        (
            {"schedules": "linear"},
            r"plan got schedules of str: it takes a list of names, as \['linear'\]",
        ),
        ({"schedules": 3}, "plan got schedules of int"),
    ],
)
def test_mistakes_name_what_is_taken(options, message):
    with pytest.raises(PlanError, match=message):
        plan_of(small_network(), **options)


def test_numpys_integers_are_taken(tmp_path):
    sizes = {"levels": 1, "workers": 2, "batch_size": 4, "memory_limit": 10**9}
    plan = plan_of(small_network(), **{name: np.int64(size) for name, size in sizes.items()})
    plan.save(tmp_path / "p.h5")
    assert (Plan.load(tmp_path / "p.h5").batch_size, plan.workers) == (4, 2)
    assert plan.schedule(0, "hybrid").levels == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Partition((0, 1.5)), "bounds of float64: it takes integers"),
        (lambda: Partition(("0", "1")), "bounds of <U1: it takes numbers"),
        (lambda: Partition(np.ma.masked_array([0, 1], [0, 1])), "bounds as a masked array"),
        (lambda: Partition(()), r"the bounds of a partition are \(\)"),
        (lambda: Partition.equal(2.5, 1), "items=2.5: it takes an integer of at least 0"),
        (lambda: Partition.equal(-2, 1), "items=-2"),
        (lambda: Partition.equal(2, 1.5), "ranks=1.5: it takes an integer of at least 1"),
        (lambda: Partition.balanced(["1", "2"], 1), "weights of <U1: it takes numbers"),
        (lambda: Partition.balanced([1j], 1), "weights of complex128"),
        (lambda: Partition.balanced([[1.0]], 1), r"of shape \(items,\)"),
        (lambda: Partition.balanced([1, np.inf], 1), "a weight of a partition is inf"),
        (lambda: plan_of(small_network()).bytes("linear", 2.5), "batch_size=2.5: it takes an integer"),
        (lambda: plan_of(small_network()).bytes("linear", 2**62), "it takes at most"),
        (lambda: plan_of(small_network()).critical_paths(1.5), "batch_size=1.5: it takes an integer"),
    ],
)
def test_partitions_and_sizes_of_other_kinds_are_refused(make, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()
