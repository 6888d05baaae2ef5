"""Plans over ranks: where they put the steps, and their files."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import partitions
from plan_cases import assert_equal_plans, plan_of, random_chain

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, Chain, Element, Partition, Plan, build_plan, place
from bppsa_cupy.plan.plan import critical_path


def over_ranks(chains, partition, batch_size=3, memory_limit=None, **options):
    """A plan of chains over ranks; the items of the partition are layers, the last one's element first."""
    layers = [{"type": "J"}] * partition.items
    budget = Budget(batch_size, 4, memory=memory_limit)
    return build_plan(chains, {"layers": layers}, budget, partition=partition, **options)


def chain_of_layers(seed, layers):
    """A random chain whose a_1 belongs to the last of so many layers."""
    chain = random_chain(layers, seed)
    numbered = [
        Element(e.name, e.pattern, e.shared, None, layers - k) for k, e in enumerate(chain.elements, 1)
    ]
    return Chain(tuple(numbered))


@settings(max_examples=12)
@given(st.sampled_from([0, 1, 2, 3, 4, 5, 9]), st.integers(0, 2**32 - 1), st.data())
def test_every_schedule_is_placed_and_kept(tmp_path_factory, n, seed, data):
    path = tmp_path_factory.mktemp("plan") / "p.h5"
    partition, chain = data.draw(partitions(n, 4)), chain_of_layers(seed, n)
    plan = over_ranks([chain], partition)
    assert (plan.workers, plan.partition) == (partition.ranks, partition)
    owners = chain.owners(partition)
    assert owners == tuple(partition.owners[::-1].tolist())
    for name in plan.schedules:
        placement = place(plan.schedule(0, name), owners, partition.ranks)
        assert placement.schedule == plan.schedule(0, name)
        assert [s.worker for s in placement.schedule.steps] == [
            owners[max(s.end - 2, 0)] for s in placement.schedule.steps
        ]
    plan.save(path)
    assert_equal_plans(plan, Plan.load(path))


def test_layers_without_an_element_belong_to_a_rank_all_the_same():
    chain = random_chain(2)
    elements = [
        Element(e.name, e.pattern, e.shared, None, item)
        for e, item in zip(chain.elements, (3, 1), strict=True)
    ]
    partition = Partition((0, 2, 3, 4))
    plan = over_ranks([Chain(tuple(elements))], partition)
    owners = plan.chains[0].chain.owners(partition)
    assert place(plan.schedule(0, "linear"), owners, 3).owners.tolist() == [2, 2, 0]


def test_a_partition_must_cover_the_network():
    chains = [chain_of_layers(0, 3)]
    with pytest.raises(PlanError, match="splits 3 over 2"):
        build_plan(chains, {"layers": [{}] * 3}, Budget(1, 4), partition=Partition((0, 1, 2)))
    with pytest.raises(PlanError, match="splits 3 over 4"):
        build_plan(chains, {"layers": [{}] * 3}, Budget(1, 4, 4), partition=Partition((0, 1, 3)))


def test_the_memory_limit_is_of_the_fullest_rank():
    chain = Chain(tuple(Element("J", Pattern.dense(8, 8), False, None, 7 - k) for k in range(8)))
    partition = Partition((0, 2, 4, 6, 8))
    plan = plan_of(chain, batch_size=3)
    limit = int(0.45 * Budget(3, plan.itemsize).bytes(plan.chains[0], plan.schedule(0, "linear")))
    plan = over_ranks([chain], partition, memory_limit=limit)
    budget = Budget(plan.batch_size, plan.itemsize, 4, owners=chain.owners(partition))
    assert all(budget.bytes(plan.chains[0], plan.schedule(0, name)) <= limit for name in plan.schedules)
    with pytest.raises(PlanError, match="limit is 100 bytes"):
        over_ranks([chain], partition, memory_limit=100)


def test_critical_paths_over_ranks_by_hand():
    """Eight dense elements of 2×2 on two ranks: 16 terms per product and 8 per vector, for two samples."""
    chain = Chain(tuple(Element("J", Pattern.dense(2, 2), False, None, 7 - k) for k in range(8)))
    plan = over_ranks([chain], Partition((0, 4, 8)), levels=1, batch_size=2)
    paths = plan.critical_paths(2, plan.partition)
    assert paths["bp"] == paths["linear"] == 7 * 8
    budget = Budget(2, 4, 2, owners=chain.owners(plan.partition))
    assert paths["hybrid"] == critical_path(plan.chains[0], plan.schedule(0, "hybrid"), budget)
    assert list(plan.critical_paths(3, plan.partition)) == ["bp"]
