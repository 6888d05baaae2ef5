"""The memory limit of a plan: what is left out, what is proposed, what automatic levels take."""

import re

import pytest
from plan_cases import plan_of, random_chain, small_network

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget
from bppsa_cupy.plan import build as build_module


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


def test_as_many_levels_as_fit_are_proposed():
    """Of the longest chain: a shorter one takes what it has."""
    chains = random_chain(20, 3, 12), random_chain(3, 2)
    amounts = [
        plan_of(*chains, schedules=["hybrid"], levels=levels, batch_size=64).bytes("hybrid")
        for levels in range(4)
    ]
    limit = plan_of(*chains, schedules=["blelloch"], batch_size=64).bytes("blelloch") - 1
    fitting = max(levels for levels, amount in enumerate(amounts) if amount <= limit)
    assert fitting == 2
    with pytest.raises(PlanError, match=rf"--schedules hybrid --levels {fitting} or") as caught:
        plan_of(*chains, schedules=["blelloch"], memory_limit=limit, batch_size=64)
    assert str(caught.value).count("--levels") == 1


def test_the_schedule_that_takes_the_least_is_told_where_none_fits():
    amounts = {name: needed(name, levels=2) for name in ("linear", "blelloch", "hybrid")}
    name, least = min(amounts.items(), key=lambda item: item[1])
    with pytest.raises(PlanError, match=f"schedule {name} takes {least} bytes"):
        plan_of(small_network(), levels=2, memory_limit=least - 1)


def test_nothing_fits():
    with pytest.raises(PlanError, match=r"its inputs pass it\): no number of levels or batch size would fit"):
        plan_of(small_network(), memory_limit=10)


def test_automatic_levels_stay_below_the_limit():
    limit = needed("linear")
    plan = plan_of(small_network(), workers=64, memory_limit=limit)
    assert plan.bytes("hybrid") <= limit


def test_automatic_levels_take_all_that_the_limit_leaves():
    """Each chain has what the ones before it and the serial scans behind it leave."""
    chains = small_network(), random_chain(9, 1), small_network()
    options = {"workers": 64, "schedules": ["hybrid"]}
    free = plan_of(*chains, **options)
    limit = free.bytes("hybrid")
    bound = plan_of(*chains, **options, memory_limit=limit)
    assert plan_of(*chains, **options, memory_limit=limit - 1).bytes("hybrid") < limit
    for index in range(len(chains)):
        assert bound.schedule(index, "hybrid") == free.schedule(index, "hybrid")
    assert free.schedule(1, "hybrid").levels


def test_what_is_left_out_is_told_of_with_what_would_fit():
    told = []
    plan = plan_of(small_network(), memory_limit=needed("blelloch") - 1, tell=told.append)
    assert list(plan.left_out) == ["blelloch"]
    (line,) = told
    assert line.startswith("schedule blelloch takes ") and re.search(r"level \d passes it.* would fit", line)
