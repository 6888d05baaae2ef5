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

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Chain, ChainPlan, Element, Plan
from bppsa_cupy.plan.file.plan_file import read_plan


@settings(max_examples=20)
@given(st.lists(st.integers(0, 12), max_size=3), st.integers(0, 2**32 - 1))
def test_round_trip(tmp_path_factory, lengths, seed):
    path = tmp_path_factory.mktemp("plan") / "p.h5"
    plan = plan_of(*(random_chain(n, seed + n) for n in lengths))
    plan.save(path)
    assert_equal_plans(plan, Plan.load(path))


def test_round_trip_of_a_network_with_a_schedule_left_out(tmp_path):
    plan = plan_of(small_network(), memory_limit=plan_of(small_network()).bytes("blelloch") - 1, workers=3)
    assert plan.left_out
    plan.save(tmp_path / "p.h5")
    assert_equal_plans(plan, Plan.load(tmp_path / "p.h5"))


def test_a_vjp_of_no_multiply_adds_is_kept(tmp_path):
    plan = plan_of(Chain((Element("J", Pattern.dense(2, 2), False, 0),)))
    plan.save(tmp_path / "p.h5")
    assert Plan.load(tmp_path / "p.h5").chains[0].chain.elements[0].vjp_multiply_adds == 0


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


def test_long_descriptions_fit(tmp_path):
    chain = random_chain(12)
    plan = plan_of(chain)
    plan.network["note"] = "x" * 200_000
    plan.save(tmp_path / "p.h5")
    assert Plan.load(tmp_path / "p.h5").network["note"] == plan.network["note"]


def test_layout(tmp_path):
    plan_of(*general_chains(), small_network()).save(tmp_path / "p.h5")
    loaded = Plan.load(tmp_path / "p.h5").chains[0]
    assert not any(array.flags.writeable for one in loaded.products.values() for array in one.maps.values())
    with h5py.File(tmp_path / "p.h5") as file:
        assert file.attrs["format"] == "bppsa-plan" and file.attrs["fingerprint"] == "f" * 64
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


def test_600_single_bit_flips_are_all_caught(saved, tmp_path):
    content = saved.read_bytes()
    damaged = tmp_path / "damaged.h5"
    for position in np.random.default_rng(0).integers(0, 8 * len(content), 600):
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


def test_missing_file(tmp_path):
    with pytest.raises(PlanError, match="does not exist"):
        Plan.load(tmp_path / "none.h5")


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
    "no fingerprint": (lambda f: f.attrs.__delitem__("fingerprint"), "'fingerprint'.*missing"),
    "network no JSON": (rewritten("network", "{"), "network is no JSON"),
    "network a list": (rewritten("network", "[]"), "network is no JSON dict"),
    "no batch": (lambda f: f.attrs.__setitem__("batch_size", 0), "at least 1"),
    "no patterns": (lambda f: f.__delitem__("patterns"), "group /patterns is missing"),
    "indices": (lambda f: set_value(first(f, "patterns"), "indices", 0, 10**6), "pattern .*indices run"),
    "indptr": (lambda f: set_value(first(f, "patterns"), "indptr", 1, -1), "pattern .*indptr decreases"),
    "digest": (lambda f: f.move(_path(f, "patterns"), "patterns/" + "0" * 64), "another digest"),
    "indices real": (
        lambda f: replace(first(f, "patterns"), "indices", np.zeros(3)),
        "signed integers",
    ),
    "pattern gone": (lambda f: f.__delitem__(_path(f, "patterns")), "pattern .* is missing"),
    "product gone": (lambda f: f.__delitem__(_path(f, "products")), "product .* is missing"),
    "kind unknown": (lambda f: first(f, "products").attrs.__setitem__("kind", "x"), "kind 'x' is unknown"),
    "kind wrong": (
        lambda f: first_of_kind(f, "row_wise").attrs.__setitem__("kind", "dense"),
        "structure of kind dense",
    ),
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
    "term_ptr end": (
        lambda f: set_value(first(f, "products", "term_ptr"), "term_ptr", -1, 7),
        "term_ptr does not run",
    ),
    "map short": (
        lambda f: replace(first(f, "products", "a_position"), "a_position", np.zeros(2, np.int32)),
        "a_position has 2 values",
    ),
    "step end": (step_of(3, 99), "schedule blelloch.*not legal.*none of a scan"),
    "step kind": (step_of(4, 1), "kind does not fit"),
    "step kind unknown": (step_of(4, 2), "its fifth number, is 0 or 1"),
    "step level": (step_of(0, 5), "levels must not decrease|not there before"),
    "step worker": (step_of(5, -1), "negative"),
    "step missing": (
        lambda f: replace(f["schedules/blelloch"], "0", f["schedules/blelloch/0"][:-1]),
        r"does not compute v\(",
    ),
    "step twice": (
        lambda f: replace(f["schedules/blelloch"], "0", np.repeat(f["schedules/blelloch/0"][()], 2, 0)),
        "there already",
    ),
    "step columns": (lambda f: replace(f["schedules/blelloch"], "0", np.zeros((2, 5), int)), "six integers"),
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
    "matrix term": (matrices(lambda m: m[0].__setitem__("vjp_multiply_adds", 1.5)), "matrix 0 has 1.5 VJP"),
    "matrices no JSON": (rewritten("chains/0/matrices", "\0"), "matrices is no JSON"),
    "element unknown": (lambda f: set_value(f["chains/0"], "elements", 0, 6), "there are 0 to 5"),
    "element negative": (lambda f: set_value(f["chains/0"], "elements", 0, -1), "matrices -1 to 5"),
    "elements unfit": (
        lambda f: replace(f["chains/0"], "elements", f["chains/0/elements"][()][::-1]),
        "rows and element",
    ),
    "names short": (rewritten("chains/0/names", '["a"]'), "6 elements have 1 names"),
    "names no text": (rewritten("chains/0/names", "[1, 2, 3, 4, 5, 6]"), "each takes one, a text"),
}


def _path(file, folder):
    return first(file, folder).name


@pytest.mark.parametrize("case", BROKEN)
def test_sealed_but_broken(saved, tmp_path, case):
    change, message = BROKEN[case]
    with pytest.raises(PlanError, match=f"(?s){message}"):
        Plan.load(edited(saved, tmp_path / "broken.h5", change))


def test_an_outline_has_the_sizes_of_the_plan(saved):
    for whole, outline in zip(Plan.load(saved).chains, Plan.outline(saved).chains, strict=True):
        for schedule in whole.schedules.values():
            for step in filter(lambda step: step.kind == "mm", schedule.steps):
                assert outline.sizes.nnz(step.out) == whole.sizes.nnz(step.out)
                for name in ("multiply_adds", "map_bytes"):
                    assert getattr(outline.sizes, name)(step) == getattr(whole.sizes, name)(step)
            by_vector = [step for step in schedule.steps if step.kind == "mv"]
            assert by_vector and not any(outline.sizes.map_bytes(step) for step in by_vector)
        with pytest.raises(PlanError, match=r"segment \[0, 99\) was not planned"):
            outline.sizes.nnz((0, 99))


def test_an_outline_refuses_row_pointers_of_another_number_of_rows(saved, tmp_path):
    def cut(file):
        group = first(file, "patterns")
        replace(group, "indptr", group["indptr"][:-1])

    with pytest.raises(PlanError, match=r"(\d+) row pointers for \1 rows"):
        Plan.outline(edited(saved, tmp_path / "cut.h5", cut))


def test_the_edited_copy_itself_loads(saved, tmp_path):
    assert_equal_plans(Plan.load(saved), Plan.load(edited(saved, tmp_path / "same.h5", lambda file: None)))


def test_the_checksum_can_be_skipped(saved, tmp_path):
    content = bytearray(saved.read_bytes())
    content[40] ^= 1
    (tmp_path / "odd.h5").write_bytes(content)
    with pytest.raises(PlanError, match="SHA-256"):
        read_plan(tmp_path / "odd.h5")
    assert_equal_plans(Plan(**read_plan(tmp_path / "odd.h5", verify=False)), Plan.load(saved))


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


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(PlanError, match="none"):
        plan_of(small_network()).save(tmp_path / "none" / "p.h5")
