"""The plan file: a round trip is the identity, and whatever is broken is named before it is used."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import assert_equal_plans, edited, general_chains, plan_of, random_chain, small_network

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


def test_vjps_of_a_schedule_are_kept_and_checked(tmp_path):
    plan = plan_of(random_chain(4), schedules=["hybrid"], levels=1)
    (chain,) = plan.chains
    with_one = dataclasses.replace(chain.schedules["hybrid"], vjps=(1, 4))
    schedules = {"hybrid": with_one}
    changed = dataclasses.replace(plan, chains=(ChainPlan(chain.chain, schedules, chain.products),))
    changed.save(tmp_path / "p.h5")
    loaded = Plan.load(tmp_path / "p.h5").schedule(0, "hybrid")
    assert loaded == with_one != chain.schedules["hybrid"]
    assert [step.kind for step in with_one.steps if step.split == 1] == ["vjp"]
    for broken, message in (
        ("[2]", "it multiplies what is crossed"),
        ("[4, 3]", "rising"),
        ("[5]", "a_1, …, a_4, rising"),
        ("[0]", "an integer from 1 on"),
        ("[true]", "an integer from 1 on"),
        ("3", "no JSON list"),
    ):

        def change(file, broken=broken):
            file["schedules/hybrid/0"].attrs["vjps"] = broken

        with pytest.raises(PlanError, match=message):
            Plan.load(edited(tmp_path / "p.h5", tmp_path / "broken.h5", change))


def test_layout(tmp_path):
    plan_of(*general_chains(), small_network()).save(tmp_path / "p.h5")
    loaded = Plan.load(tmp_path / "p.h5").chains[0]
    assert not any(array.flags.writeable for one in loaded.products.values() for array in one.maps.values())
    with h5py.File(tmp_path / "p.h5") as file:
        assert (
            file.attrs["format"] == "bppsa-plan"
            and file.attrs["fingerprint"] == Plan.load(tmp_path / "p.h5").fingerprint
        )
        assert content(file, "network")["input_shape"] == [1, 10, 10]
        assert set(file["schedules"]) == {"linear", "blelloch", "hybrid"}
        factors = {digest for name in file["products"] for digest in name.split("_")}
        assert factors <= set(file["patterns"])
        arrays = []
        file.visititems(lambda _, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
        assert arrays and all(array.fletcher32 for array in arrays)
        compressed = {array.name.split("/")[1] for array in arrays if array.compression == "gzip"}
        assert compressed >= {"patterns", "products"}
        for array in arrays:
            assert array.compression == ("gzip" if array.name.split("/")[1] in compressed else None)
        assert file.userblock_size == 512


# ---- damage ----


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "p.h5"
    plan_of(small_network(), *general_chains()).save(path)
    return path


def test_200_single_bit_flips_are_all_caught(saved, tmp_path):
    content = saved.read_bytes()
    damaged = tmp_path / "damaged.h5"
    for position in np.random.default_rng(0).integers(0, 8 * len(content), 200):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << (position % 8)
        damaged.write_bytes(flipped)
        with pytest.raises(PlanError, match=r"damaged\.h5"):
            Plan.load(damaged)


@pytest.mark.parametrize("keep", [0, 1, 511, 512, 600, 0.5, 0.99])
def test_truncated(saved, tmp_path, keep):
    content = saved.read_bytes()
    cut = tmp_path / "cut.h5"
    cut.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(PlanError, match=r"cut\.h5"):
        Plan.load(cut)


def first(file, folder, having=None):
    return next(g for g in file[folder].values() if having is None or having in g)


def first_of_kind(file, kind):
    return next(group for group in file["products"].values() if group.attrs["kind"] == kind)


def set_value(group, name, index, value):
    array = group[name][()]
    array[index] = value
    group[name][()] = array


def replace(group, name, array):
    attributes = dict(group[name].attrs)
    del group[name]
    group[name] = array
    group[name].attrs.update(attributes)


def step_of(index, value):
    return lambda file: set_value(file["schedules/blelloch"], "0", (0, index), value)


def content(file, name):
    return json.loads(file[name][()].tobytes())


def rewritten(name, text):
    return lambda file: replace(file, name, np.frombuffer(text.encode(), np.uint8))


def matrices(change):
    def apply(file):
        items = content(file, "chains/0/matrices")
        change(items)
        rewritten("chains/0/matrices", json.dumps(items))(file)

    return apply


BROKEN = {
    "another format": (lambda f: f.attrs.__setitem__("format", "x"), "a plan is 'bppsa-plan'"),
    "another version": (lambda f: f.attrs.__setitem__("format_version", 1), "version 1.*reads version 3"),
    "network no JSON": (rewritten("network", "{"), "network is no JSON"),
    "no batch": (lambda f: f.attrs.__setitem__("batch_size", 0), "at least 1"),
    "no patterns": (lambda f: f.__delitem__("patterns"), "group /patterns is missing"),
    "indices": (lambda f: set_value(first(f, "patterns"), "indices", 0, 10**6), "pattern .*indices run"),
    "indptr": (lambda f: set_value(first(f, "patterns"), "indptr", 1, -1), "pattern .*indptr decreases"),
    "digest": (lambda f: f.move(_path(f, "patterns"), "patterns/" + "0" * 64), "another digest"),
    "pattern gone": (lambda f: f.__delitem__(_path(f, "patterns")), "pattern .* is missing"),
    "product gone": (lambda f: f.__delitem__(_path(f, "products")), "product .* is missing"),
    "kind unknown": (lambda f: first(f, "products").attrs.__setitem__("kind", "x"), "kind 'x' is unknown"),
    "multiply-adds": (
        lambda f: first(f, "products").attrs.__setitem__("multiply_adds", 1),
        "multiply-adds, not 1",
    ),
    "a_position": (
        lambda f: set_value(first(f, "products", "a_position"), "a_position", 0, 10**6),
        "a_position holds positions outside",
    ),
    "term_ptr": (
        lambda f: set_value(first(f, "products", "term_ptr"), "term_ptr", 1, 0),
        "term_ptr does not increase",
    ),
    "step end": (step_of(3, 99), "schedule blelloch.*not legal.*none of a scan"),
    "step kind": (step_of(4, 1), "kind does not fit"),
    "step level": (step_of(0, 5), "levels must not decrease|not there before"),
    "step missing": (
        lambda f: replace(f["schedules/blelloch"], "0", f["schedules/blelloch/0"][:-1]),
        r"does not compute v\(",
    ),
    "step twice": (
        lambda f: replace(f["schedules/blelloch"], "0", np.repeat(f["schedules/blelloch/0"][()], 2, 0)),
        "there already",
    ),
    "schedule length": (
        lambda f: f["schedules/blelloch/0"].attrs.__setitem__("n", 5),
        "not legal|for 5 matrices",
    ),
    "schedule unknown": (lambda f: f.move("schedules/hybrid", "schedules/other"), "there are linear"),
    "schedule short": (lambda f: f.__delitem__("schedules/hybrid/2"), "hybrid is for 2 chains, there are 3"),
    "chain numbers": (lambda f: f.move("chains/0", "chains/9"), "numbered from 0"),
    "matrix pattern": (matrices(lambda m: m[0].__setitem__("pattern", "0" * 64)), "of matrix 0 is missing"),
    "matrix fields": (matrices(lambda m: m[0].pop("shared")), "matrix 0 lacks"),
    "matrix terms": (matrices(lambda m: m[0].__setitem__("vjp_multiply_adds", -1)), "matrix 0 has -1 VJP"),
    "matrices no JSON": (rewritten("chains/0/matrices", "\0"), "matrices is no JSON"),
    "element unknown": (lambda f: set_value(f["chains/0"], "elements", 0, 6), "there are 0 to 5"),
    "elements unfit": (
        lambda f: replace(f["chains/0"], "elements", f["chains/0/elements"][()][::-1]),
        "rows and element",
    ),
    "names short": (rewritten("chains/0/names", '["a"]'), "6 elements have 1 names"),
}


def _path(file, folder):
    return first(file, folder).name


@pytest.mark.parametrize("case", BROKEN)
def test_sealed_but_broken(saved, tmp_path, case):
    change, message = BROKEN[case]
    with pytest.raises(PlanError, match=f"(?s){message}"):
        Plan.load(edited(saved, tmp_path / "broken.h5", change))


def test_a_kill_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "p.h5"
    plan_of(random_chain(3)).save(path)
    before = path.read_bytes()
    code = """
import os, signal, sys
from plan_cases import assert_equal_plans, edited, general_chains, plan_of, small_network
from bppsa_cupy.plan.file import products as file
file._write_product = lambda group, product: os.kill(os.getpid(), signal.SIGKILL)
plan_of(small_network()).save(sys.argv[1])
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    killed = subprocess.run([sys.executable, "-c", code, str(path)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == before


def test_a_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("bppsa_cupy.plan.file.plan_file.write_schedule", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plan_of(small_network()).save(tmp_path / "p.h5")
    assert list(tmp_path.iterdir()) == []


def test_long_chains_of_equal_elements_are_small_and_read_in_another_process(tmp_path):
    """An RNN of 30,000 steps, read by a child that says its fingerprint and schedules."""
    n, path = 30000, tmp_path / "p.h5"
    plan = plan_scan(make_chain([(CellJacobian(FORMS["rnn_tanh"], 20).pattern, False)] * n), device="host")
    assert plan.schedules == ("linear", "blelloch", "hybrid") and len(plan.chains[0].products) == 1
    plan.save(path)
    assert path.stat().st_size < 1 << 20
    code = """
import sys, bppsa_cupy as bp
plan = bp.Plan.load(sys.argv[1])
digests = [plan.schedule(0, name).digest for name in plan.schedules]
print(plan.fingerprint, *digests, *plan.critical_paths(1).values())
"""
    child = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    expected = plan.fingerprint, *(plan.schedule(0, name).digest for name in plan.schedules)
    assert child.stdout.split() == [*expected, *map(str, plan.critical_paths(1).values())]
