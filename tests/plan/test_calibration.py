"""Kept cost models: saved and loaded alike, ignored where damaged or foreign; and the fit of rates."""

import json
import math
import warnings
from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.cost import calibrated, model_from_json, model_to_json
from bppsa_cupy.plan.cost.models import MODELS, cost_model_of, find_model
from bppsa_cupy.plan.cost_model import KINDS, CostModel, Link, Rate
from bppsa_cupy.system import calibration
from bppsa_cupy.system.calibration import (
    Calibration,
    calibration_path,
    load_calibration,
    load_part,
    save_calibration,
    this_machine,
)
from bppsa_cupy.tools.benchmarks.calibration_fit import Observation, errors_by_class, fit_model, fit_rate

POSITIVE = st.floats(1e-12, 1e18)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(
        calibration, "calibration_path", lambda device: tmp_path / "new" / "kept" / f"{device}.json"
    )
    calibration._read_once.cache_clear()
    return tmp_path / "new" / "kept"


MEASURED = CostModel("host", Rate(1e9, math.inf), 1e-6, 2e-5, {"terms": Rate(3.7e9, 1.1e10)})


def kept(model=MEASURED):
    return Calibration("host", this_machine("host"), {"python": "3"}, "2026-01-01", model_to_json(model))


def load():
    """The kept model of the host."""
    return load_part("host", "model", model_from_json)


rates = st.builds(Rate, POSITIVE | st.just(math.inf), POSITIVE, POSITIVE | st.just(math.inf))


links = st.builds(Link, st.floats(0, 1), POSITIVE | st.just(math.inf))


@given(rates, st.dictionaries(st.sampled_from(KINDS), rates), st.floats(0, 1), st.floats(0, 1), links)
def test_a_kept_model_is_the_one_that_was_saved(rate, of_kinds, launch, call, link):
    model = CostModel("host", rate, launch, call, of_kinds, link)
    save_calibration(kept(model))
    assert load() == model


def test_kept_models_are_used():
    assert find_model("host") == MODELS["host"] and calibrated("cuda") is None
    save_calibration(kept())
    assert load_calibration("host") == kept() and load() == MEASURED
    assert find_model("host") == cost_model_of("host") == cost_model_of("emulated") == MEASURED
    assert find_model("ideal") == MODELS["ideal"] and find_model("cuda") == MODELS["cuda"]
    labels = [find_model(name).label for name in ("host", "cuda", "ideal")]
    assert labels == ["host", "cuda, uncalibrated", "ideal"]
    save_calibration(kept(replace(MEASURED, seconds_per_launch=7e-6)))
    assert find_model("host").seconds_per_launch == 7e-6


def test_large_work_of_a_kind_may_have_a_rate_of_its_own():
    model = replace(MEASURED, rates={"terms": Rate(1.0, 2.0), "terms large": Rate(3.0, 4.0)})
    save_calibration(kept(model))
    assert load() == model


def test_a_model_that_is_not_kept_is_not_found():
    with pytest.raises(FileNotFoundError):
        load_calibration("host")


def test_a_model_that_is_given_is_left_alone():
    assert find_model(MEASURED) is MEASURED


@pytest.mark.parametrize("position", range(0, 900, 41))
def test_damage_is_warned_of_once_and_the_estimates_serve(position):
    path = save_calibration(kept())
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1
    path.write_bytes(content)
    with pytest.raises(PlanError, match=r"host\.json"):
        load()
    with pytest.warns(RuntimeWarning, match="built-in estimates are used"):
        assert find_model("host") == MODELS["host"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_model("host") == MODELS["host"]


def sealed(path, change):
    """The file with `change` made to its content, and a seal that fits."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("sha256")
    change(content)
    path.write_text(json.dumps({**content, "sha256": calibration._digest(content)}), encoding="utf-8")


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda c: c["machine"].update(cpu="another"), "another"),
        (lambda c: c["machine"].update(threads=10_000), "10000"),
        (lambda c: c.update(device="cuda"), "cuda"),
        (lambda c: c.update(format_version=1), "cost-model 1"),
        (lambda c: c["model"]["rates"].update(unheard={"multiply_adds_per_second": 1}), "KeyError"),
        (lambda c: c["model"]["rates"].update(unheard=c["model"]["rates"]["terms"]), "unheard"),
        (lambda c: c["model"]["rates"]["terms"].update(bytes_per_second=-1), "-1"),
        (lambda c: c["model"]["rates"]["terms"].update(bytes_per_second="fast"), "fast"),
        (lambda c: c["model"].update(seconds_per_call=-1), "seconds"),
        (lambda c: c["model"].update(seconds_per_call=math.inf), "inf is no number of seconds"),
        (lambda c: c["model"].pop("rates"), "rates"),
        (lambda c: c["model"].pop("link"), "link"),
        (lambda c: c["model"]["link"].update(latency=-1e-6), "seconds"),
        (lambda c: c["model"]["link"].update(latency=None), "TypeError"),
        (lambda c: c["model"]["link"].update(bytes_per_second=0), "no rate"),
        (lambda c: c["model"]["rates"].pop(""), "KeyError"),
        (lambda c: c.pop("date"), "date"),
    ],
)
def test_what_is_foreign_or_incomplete_is_named(change, complaint):
    path = save_calibration(kept())
    sealed(path, change)
    with pytest.raises(PlanError, match=complaint):
        load()


def test_a_file_of_the_version_before_has_no_walks():
    path = save_calibration(replace(kept(), walks={"launch": 1e-6}))
    assert load_calibration("host").walks == {"launch": 1e-6}
    sealed(path, lambda c: (c.update(format_version=2), c.pop("walks")))
    assert load_calibration("host").walks is None and load() == MEASURED


def test_the_order_in_which_a_file_says_things_is_of_no_meaning():
    path = save_calibration(kept())
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(dict(reversed(content.items()))), encoding="utf-8")
    assert load() == MEASURED


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"sha256": 1}', "\x00"])
def test_what_is_no_calibration_is_refused(text, cache):
    cache.mkdir(parents=True)
    calibration.calibration_path("host").write_text(text, encoding="utf-8")
    with pytest.raises(PlanError, match=r"host\.json"):
        load_calibration("host")


def test_a_cache_that_cannot_be_made_is_a_stated_error(cache):
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(PlanError, match="XDG_CACHE_HOME"):
        save_calibration(kept())


def test_the_place_is_below_the_users_cache(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(calibration_path("cuda")) == "/somewhere/bppsa-cupy/cost-models/cuda.json"
    assert calibration_path("host").name == f"host-{numba.get_num_threads()}-threads.json"
    assert set(this_machine("host")) == {"cpu", "threads"} and set(this_machine("cuda")) == {"cpu", "gpus"}


# ---- the fit ----


def observed(rate, overhead, kind="terms", noise=1.0):
    sizes = [(10**a, 10**b) for a in range(2, 9) for b in range(2, 9)]
    return [Observation(kind, m, n, noise * (overhead + rate.seconds(m, n))) for m, n in sizes]


@given(st.floats(1e6, 1e13), st.floats(1e6, 1e13))
def test_exact_times_give_the_rates_back(terms, moved):
    rate = Rate(terms, moved)
    found = fit_rate(observed(rate, 0.0), 0.0)
    for m, n in ((10**7, 10**3), (10**3, 10**7), (10**6, 10**6)):
        assert found.seconds(m, n) == pytest.approx(rate.seconds(m, n), rel=1e-6)


def test_outliers_and_noise_move_the_rates_little():
    rate, overhead = Rate(3e9, 1e10), 1e-5
    generator = np.random.default_rng(0)
    times = [
        replace(o, seconds=o.seconds * float(np.exp(0.1 * generator.standard_normal())))
        for o in observed(rate, overhead)
    ]
    times = [replace(o, seconds=30 * o.seconds) if k % 10 == 0 else o for k, o in enumerate(times)]
    found = fit_rate(times, overhead)
    assert found.multiply_adds_per_second == pytest.approx(3e9, rel=0.2)
    assert found.bytes_per_second == pytest.approx(1e10, rel=0.2)


def test_a_model_has_a_rate_for_each_kind_seen_and_one_for_the_others():
    seen = observed(Rate(1e9, 1e10), 1e-6) + observed(Rate(1e11, 1e10), 1e-4, "vjp")
    model = fit_model("host", seen, 1e-6, 1e-4)
    assert set(model.rates) == {"terms", "terms large", "vjp", "vjp large"}
    assert model.work_seconds("dense", 10**8, 10) == pytest.approx(0.1, rel=1e-3)
    assert model.work_seconds("vjp", 10**10, 10) == pytest.approx(0.1, rel=1e-3)
    for ratios in errors_by_class(model, seen).values():
        assert np.allclose(ratios, 1, rtol=1e-3)


def test_loops_of_few_samples_cost_more_than_those_of_many():
    rate = Rate(2e10, 2e10, 4e8)
    seen = [
        Observation("terms", terms * width, 8 * terms, rate.seconds(terms * width, 8 * terms, terms), width)
        for terms in (10**3, 10**4, 10**5)
        for width in (1, 8, 64, 512)
    ]
    found = fit_rate(seen, 0.0)
    for o in seen:
        assert found.seconds(o.multiply_adds, o.bytes, o.multiply_adds / o.width) == pytest.approx(
            o.seconds, rel=0.25
        )


def test_work_of_nothing_has_no_limit():
    assert fit_rate([], 1e-6) == Rate(math.inf, math.inf)
    assert fit_rate([Observation("terms", 0, 0, 1e-6)], 1e-6) == Rate(math.inf, math.inf)
