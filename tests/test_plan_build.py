"""Building plans: every schedule's products are there, sizes are checked first, errors name the fix."""

import io
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, random_chain, small_network
from symbolic_oracle import evaluate

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, Partition, Plan, with_input_gradient
from bppsa_cupy.plan import build as build_module
from bppsa_cupy.plan.algorithms import hybrid, linear
from bppsa_cupy.plan.cost import MODELS, schedule_cost
from bppsa_cupy.plan.search import compute_schedule, searched_segments
from bppsa_cupy.plan.sizes import CountedSizes
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
    plan = plan_of(chain, workers=workers, model="ideal", schedules=["hybrid"])
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
    assert plan_of().schedules == ()


def test_workers_are_numbered_below_their_count():
    assert plan_of(small_network()).workers == 1
    plan = plan_of(small_network(), workers=2)
    assert plan.workers == 2
    workers = {s.worker for s in plan.schedule(0, "blelloch").steps}
    assert workers <= {0, 1}


# ---- the memory limit ----


def needed(name, **options):
    return plan_of(small_network(), schedules=[name], **options).bytes(name)


def test_what_does_not_fit_is_left_out_and_never_made(monkeypatch):
    limit = needed("blelloch") - 1
    made = []
    multiply_chain = build_module.multiply_chain
    monkeypatch.setattr(
        build_module,
        "multiply_chain",
        lambda chain, schedules, products: (
            made.extend(schedules) or multiply_chain(chain, schedules, products)
        ),
    )
    plan = plan_of(small_network(), memory_limit=limit)
    assert "blelloch" not in plan.schedules and "linear" in plan.schedules
    assert plan.left_out == {"blelloch": limit + 1}
    assert {schedule.name for schedule in made} == set(plan.schedules)
    with pytest.raises(PlanError, match=f"left out: it takes {limit + 1} bytes"):
        plan.schedule(0, "blelloch")


def test_exactly_the_limit_fits():
    plan = plan_of(small_network(), memory_limit=needed("blelloch"))
    assert plan.bytes("blelloch") == needed("blelloch")
    assert plan.bytes("blelloch", 1) == needed("blelloch", batch_size=1) < needed("blelloch")


def test_a_schedule_asked_for_that_does_not_fit():
    limit = needed("blelloch", batch_size=64) - 1
    with pytest.raises(PlanError) as caught:
        plan_of(small_network(), schedules=["blelloch"], memory_limit=limit, batch_size=64)
    message = str(caught.value)
    assert message.count("--levels") == message.count("--batch-size") == 1
    assert f"blelloch takes {limit + 1} bytes" in message and f"limit is {limit} bytes" in message
    assert re.search(r"\(level \d+ passes it\)", message)
    levels = int(re.search(r"--levels (\d+)", message)[1])
    batch = int(re.search(r"--batch-size (\d+)", message)[1])
    common = {"memory_limit": limit}
    assert plan_of(small_network(), schedules=["hybrid"], levels=levels, batch_size=64, **common)
    assert plan_of(small_network(), schedules=["blelloch"], batch_size=batch, **common)
    with pytest.raises(PlanError):
        plan_of(small_network(), schedules=["blelloch"], batch_size=batch + 1, **common)


def test_the_level_that_passes_the_limit_is_named():
    """Of the first chain that does not fit, what those before it take included."""
    plan = plan_of(random_chain(3, 2), random_chain(12, 1), schedules=["blelloch"])
    first, second = plan.chains
    before = Budget(4, 4).bytes(first.sizes, plan.schedule(0, "blelloch"))
    held = Budget(4, 4).bytes_by_level(second.sizes, plan.schedule(1, "blelloch"))
    grown = [level for level in range(len(held) - 1) if held[level + 1] > held[level]]
    assert len(grown) > 1
    for level in grown:
        limit = before + held[level + 1] - 1
        with pytest.raises(PlanError, match=rf"\(level {level} passes it\)"):
            plan_of(first.chain, second.chain, schedules=["blelloch"], memory_limit=limit)


def test_the_schedule_that_takes_the_least_is_told_where_none_fits():
    amounts = {name: needed(name, levels=2) for name in ("linear", "blelloch", "hybrid")}
    name, least = min(amounts.items(), key=lambda item: item[1])
    with pytest.raises(PlanError, match=f"schedule {name} takes {least} bytes"):
        plan_of(small_network(), levels=2, memory_limit=least - 1)


class Terminal(io.StringIO):
    """What is written to a terminal, or not to one."""

    def __init__(self, is_one):
        super().__init__()
        self.isatty = lambda: is_one


@pytest.mark.parametrize(("is_terminal", "progress"), [(True, True), (True, False), (False, True)])
def test_a_bar_is_shown_on_a_terminal_where_it_is_asked_for(is_terminal, progress, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal(is_terminal))
    plan_of(small_network(), progress=progress)
    written = sys.stderr.getvalue()
    assert all(
        (f"{what}: 100%" in written) == (is_terminal and progress) for what in ("counting", "products")
    )


def test_nothing_fits():
    with pytest.raises(PlanError, match=r"its inputs pass it\): no number of levels or batch size would fit"):
        plan_of(small_network(), memory_limit=10)


def test_automatic_levels_stay_below_the_limit():
    limit = needed("linear")
    plan = plan_of(small_network(), workers=64, model="ideal", memory_limit=limit)
    assert plan.bytes("hybrid") <= limit


def test_automatic_levels_take_all_that_the_limit_leaves():
    """Each chain has what the ones before it and the serial scans behind it leave."""
    chains = small_network(), random_chain(9, 1), small_network()
    options = {"workers": 64, "model": "ideal", "schedules": ["hybrid"]}
    free = plan_of(*chains, **options)
    limit = free.bytes("hybrid")
    bound = plan_of(*chains, **options, memory_limit=limit)
    assert plan_of(*chains, **options, memory_limit=limit - 1).bytes("hybrid") < limit
    for index, chain in enumerate(chains):
        assert bound.schedule(index, "hybrid") == free.schedule(index, "hybrid")
        assert free.schedule(index, "hybrid").steps != linear(len(chain)).steps


def test_automatic_levels_choose_from_all_segments():
    chain = random_chain(9, 1)
    plan = plan_of(chain, workers=64, model="ideal", schedules=["hybrid"])
    sizes = CountedSizes(chain, searched_segments(chain))
    budget = Budget(plan.batch_size, 4, 64, MODELS["ideal"])
    best = schedule_cost(sizes, compute_schedule(sizes, budget), budget).schedule
    assert plan.schedule(0, "hybrid") == best
    made = {(i, j) for level in range(4) for i, j in hybrid(9, level).out.tolist()}
    assert not {step.out for step in plan.schedule(0, "hybrid").steps} <= made


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


def test_what_is_left_out_is_told_of_with_what_would_fit():
    told = []
    plan = plan_of(small_network(), memory_limit=needed("blelloch") - 1, tell=told.append)
    assert list(plan.left_out) == ["blelloch"]
    (line,) = told
    assert line.startswith("schedule blelloch takes ") and re.search(r"level \d passes it.* would fit", line)


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
        (lambda: plan_of(small_network()).predict(1.5, "host"), "batch_size=1.5: it takes an integer"),
    ],
)
def test_partitions_and_sizes_of_other_kinds_are_refused(make, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()
