"""The plan file: a round trip is the identity, and whatever is broken is named before it is used."""

import dataclasses
import hashlib
import subprocess
import sys

import h5py
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import assert_equal_plans, edited, general_chains, plan_of, random_chain, small_network
from refusals import assert_refused

from bppsa_cupy.errors import PlanError
from bppsa_cupy.jacobians.cell import CellJacobian
from bppsa_cupy.plan import ChainPlan, Plan
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.scan.primitive import make_chain, plan_scan


@settings(max_examples=20)
@given(st.lists(st.integers(0, 12), max_size=3), st.integers(0, 2**32 - 1))
def test_round_trip(tmp_path_factory, lengths, seed):
    path = tmp_path_factory.mktemp("plan") / "p.h5"
    plan = plan_of(*(random_chain(n, seed + n) for n in lengths))
    plan.save(path)
    assert_equal_plans(plan, Plan.load(path))


def test_vjps_of_a_schedule_are_kept(tmp_path):
    plan = plan_of(random_chain(4), schedules=["hybrid"], levels=1)
    (chain,) = plan.chains
    with_one = dataclasses.replace(chain.schedules["hybrid"], vjps=(1, 4))
    schedules = {"hybrid": with_one}
    changed = dataclasses.replace(plan, chains=(ChainPlan(chain.chain, schedules, chain.products),))
    changed.save(tmp_path / "p.h5")
    loaded = Plan.load(tmp_path / "p.h5").schedule(0, "hybrid")
    assert loaded == with_one != chain.schedules["hybrid"]
    assert [step.kind for step in with_one.steps if step.split == 1] == ["vjp"]


def test_data_sets_have_checksums_and_maps_are_read_only(tmp_path):
    plan_of(*general_chains(), small_network()).save(tmp_path / "p.h5")
    loaded = Plan.load(tmp_path / "p.h5").chains[0]
    assert not any(array.flags.writeable for p in loaded.products.values() for array in p.maps.values())
    arrays = []
    with h5py.File(tmp_path / "p.h5") as file:
        file.visititems(lambda _, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
        assert arrays and all(array.fletcher32 for array in arrays)


# ---- damage ----


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "p.h5"
    plan_of(small_network(), *general_chains()).save(path)
    return path


def attribute(name, value):
    return lambda file: file.attrs.__setitem__(name, value)


BROKEN = [
    (attribute("format", "x"), "'x'", "'bppsa-plan'"),
    (attribute("format_version", 1), "version 1", "version 3"),
    (lambda f: f.__delitem__("patterns"), "patterns", "write it again"),
]


@pytest.mark.parametrize("change, value, fix", BROKEN)
def test_sealed_but_broken(saved, tmp_path, change, value, fix):
    path = edited(saved, tmp_path / "broken.h5", change)
    assert_refused(lambda: Plan.load(path), PlanError, value, fix)


def test_long_chains_of_equal_elements_are_small_and_read_in_another_process(tmp_path):
    """An RNN of 4,000 steps, read by a child that says its fingerprint and schedules."""
    n, path = 4000, tmp_path / "p.h5"
    plan = plan_scan(make_chain([(CellJacobian(FORMS["rnn_tanh"], 20).pattern, False)] * n), device="host")
    assert plan.schedules == ("linear", "blelloch", "hybrid") and len(plan.chains[0].products) == 1
    plan.save(path)
    assert path.stat().st_size < 1 << 18
    code = """
import hashlib, sys, bppsa_cupy as bp
plan = bp.Plan.load(sys.argv[1])
tables = [plan.schedule(0, name).table for name in plan.schedules]
print(plan.fingerprint, *(hashlib.sha256(table).hexdigest() for table in tables))
"""
    child = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    digests = [hashlib.sha256(plan.schedule(0, name).table).hexdigest() for name in plan.schedules]
    assert child.stdout.split() == [plan.fingerprint, *digests]
