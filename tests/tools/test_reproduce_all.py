"""bppsa-reproduce all: a tiny profile once, kept and gone on from; the page in a browser."""

import argparse
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import reproduce
from bppsa_cupy.tools.reproduction import cells, command, profiles, runs
from bppsa_cupy.tools.reproduction.page import Facts, write_page
from bppsa_cupy.tools.reproduction.parts import make_parts
from bppsa_cupy.tools.reproduction.shown import Part, Shown, compared

pytestmark = pytest.mark.long

pytest.importorskip("torch")
pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]
TINY = profiles.Profile(
    "tiny", repeats=1, quick=True, columns=2, corner=40, layers=(1, 2), lengths=(10,), batches=(2,),
    groups=(("S", 16),), most_steps=6, dtypes=("float32",), sets=("S",), devices=(1, 2, 4), depth=8,
    images={"iterations": 2, "batch_size": 4, "lr": 0.01},
    bits={"iterations": 2, "samples": 20, "length": 12, "lr": 1e-3},
    audio={"iterations": 2, "samples": 11, "lr": 1e-3},
    work={"model": "lenet5", "prune": 0.9, "seed": 0, "full": True},
)  # fmt: skip


#: The run itself, which the page's tests replace.
MEASURED = runs.recurrent


class Reader(HTMLParser):
    """The elements of a page: tags in order, ids, addresses, and whether every one is closed."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.open, self.labels = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src", "xlink:href") if name in found]
        self.labels += [found.get("aria-label")] if tag == "svg" else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def operator(settings):
    """In place of runs.operator: the rows that are in the documents."""
    rows = json.loads((ROOT / "docs/results/jacobians.json").read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["case"].startswith(f"{settings['layer']} ")]


def recurrent(settings):
    """In place of runs.recurrent: what it gives, at once."""
    times = {"ours": (1e-5, 2e-5), "scan": (1e-5, 1e-4), "theirs": (1e-4, 3e-4)}
    return {
        "steps": 6, "features": 1, "batch": 16, "against": "PyTorch, 1 thread",
        "seconds": {side: {quantity: {"median": value, "quartiles": [0.9 * value, 1.2 * value]}
                           for quantity, value in (("forward", f), ("backward", b), ("overall", f + b))}
                    for side, (f, b) in times.items()},
    }  # fmt: skip


def reproduce_all(folder, *more):
    return reproduce.main(["all", "-o", str(folder), "--quick", "--device", "host", *more])


@pytest.fixture(scope="module")
def tiny():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "QUICK", TINY)
        patch.setattr(runs, "operator", operator)
        patch.setattr(runs, "recurrent", recurrent)
        yield


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    """A folder in which the command was stopped after some runs, shown, and gone on with."""
    folder = tmp_path_factory.mktemp("report")
    whole, stopped = runs.convolutional_training, []

    def killed(settings):
        stopped.append(settings["run"])
        if len(stopped) == 3:
            raise KeyboardInterrupt
        return whole(settings)

    killed.__module__, killed.__name__ = whole.__module__, whole.__name__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "convolutional_training", killed)
        assert reproduce_all(folder) == 130
        partly = (folder / "report.html").read_text(encoding="utf-8")
        first = {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
        assert reproduce_all(folder) == 0
    assert all(path.stat().st_mtime_ns == when for path, when in first.items())
    return folder, partly, len(first), stopped


def test_a_run_that_was_stopped_is_gone_on_with(made):
    folder, _, kept, stopped = made
    assert kept == 7 and stopped[:3] == ["bp", "linear", "blelloch"]
    assert stopped[3:] == ["blelloch", "hybrid", "noise 1", "noise 2", "noise 3"]
    assert len(list((folder / "runs").iterdir())) == len(profiles.make_cells(TINY, profiles.Given("host", 1)))


def test_an_unfinished_page_says_what_is_missing(made):
    _, partly, _, _ = made
    assert "11 of 18 runs are not there yet: LeNet-5 float32 blelloch" in partly
    assert '<span class="badge missing">missing</span>' in partly
    assert Reader(partly).tags.count("section") == len(make_parts(TINY)) + 2


def test_the_page_is_whole(made):
    text = (made[0] / "report.html").read_text(encoding="utf-8")
    page = Reader(text)
    assert page.open == [] and len(page.ids) == len(set(page.ids))
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert "script" not in page.tags and "url(http" not in text and len(text) < 4_000_000
    assert page.tags.count("figure") == page.tags.count("figcaption")
    assert all(len(label) > 40 for label in page.labels)
    # Every drawing and every table but the summary is a figure with a caption.
    assert page.tags.count("figure") == len(page.labels) + page.tags.count("table") - 1
    assert "not there yet" not in text and "badge missing" not in text
    for part in make_parts(TINY):
        assert f'id="{part.key}"' in text and part.title in text
    for number in ("1557.94", "409.33", "6.91", "0.99994", "1,200,000×", "108", "13.4"):
        assert number in text


def test_another_setting_is_another_run(made, tiny):
    folder = made[0]
    store = cells.Store(folder / "runs", {"cpu": "another"})
    assert store.read(cells.Cell("space", runs.space, {"layers": 8, "devices": [1, 2, 4]}, 1)) is None
    machine = next(iter((folder / "runs").iterdir())).read_text(encoding="utf-8")
    assert '"machine": {' in machine


def test_results_are_kept_by_all_the_modules_that_runs_import():
    """But those that draw, read options and write files."""
    found, waiting = set(), ["runs"]
    while waiting:
        found.add(name := waiting.pop())
        text = Path(cells.__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        imported = re.findall(r"^from bppsa_cupy\.tools\.reproduction(?:\.(\w+))? import (.*)", text, re.M)
        names = {name for module, names in imported for name in ([module] if module else names.split(", "))}
        waiting += sorted(names - found)
    assert found - set(cells.MODULES) == {"drawings", "result_file"} and set(cells.MODULES) <= found


def test_a_row_of_the_tables_is_measured_against_pytorch():
    settings = {
        "cell": "gru", "case": "S", "most_steps": 5, "device": "host", "threads": 1, "repeats": 1,
        "quick": True,
    }  # fmt: skip
    found = MEASURED(settings)
    assert (found["steps"], found["features"], found["batch"]) == (5, 38, 16)
    assert found["against"] == "PyTorch, 1 thread" and set(found["seconds"]) == {"ours", "scan", "theirs"}
    for laps in found["seconds"].values():
        assert set(laps) == {"forward", "backward", "overall"}
        assert all(lap["quartiles"][0] <= lap["median"] <= lap["quartiles"][1] for lap in laps.values())


def test_space_follows_the_formulae():
    found = runs.space({"layers": 16, "devices": [1, 2, 4, 8, 16]})
    assert found["GPipe"] == [16 / k + k for k in (1, 2, 4, 8, 16)]
    assert found["PipeDream"] == [16] * 5 and found["weight_versions"] == [1, 2, 4, 8, 16]
    for held, formula in zip(found["BPPSA"], (16, 8, 4, 2, 1), strict=True):
        assert formula <= held <= 1.5 * formula + 2
    assert found["BPPSA"] == sorted(found["BPPSA"], reverse=True)


def test_without_pytorch_nothing_is_begun(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert reproduce_all(tmp_path) == 1
    out, error = capsys.readouterr()
    assert out == "" and "PyTorch, which cannot be imported" in error and "the extra 'torch'" in error
    assert not (tmp_path / "runs").exists() and not (tmp_path / "report.html").exists()


def test_some_of_several_ratios_are_told_in_numbers():
    assert compared([2.0, 3.0], [1.0, 3.0]) == "better" and compared([2.0], [3.0]) == "worse"
    assert compared([2.0, 0.5, 1.0], [1.0, 1.0, 1.0]) == "better in 2 of 3"
    part = Part("Table 9", "Some", "what", ["a"], lambda results: Shown("better in 2 of 3", "So it is."))
    kept = cells.Kept("a", {}, 1.0, {}, None)
    machine = {"machine": {"cpu": "c", "cores": 1, "threads": 1, "gpu": None}, "versions": {}}
    text = write_page([part], Facts("all", "quick", machine, {"a": kept}, {}))
    assert text.count('<span class="badge mixed">better in 2 of 3</span>') == 2


def test_a_run_that_fails_does_not_stop_the_others(tiny, tmp_path, monkeypatch, capsys):
    def fails(settings):
        raise BppsaError("no such thing: take another")

    monkeypatch.setattr(command, "make_cells", lambda profile, given: {
        "zeros 1": cells.Cell("zeros 1", fails, {}, 1),
        "space": cells.Cell("space", runs.space, {"layers": 8, "devices": [1, 2]}, 1),
    })  # fmt: skip
    assert reproduce_all(tmp_path) == 1
    out, error = capsys.readouterr()
    failed = r"1/2 zeros 1: failed \(no such thing: take another\)\n"
    assert re.match(failed + r"2/2 space: \d+\.\d s\n", out), out
    assert error == "error: 1 run failed, first zeros 1: no such thing: take another; the page says which\n"
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "zeros 1: no such thing: take another." in text and "Space a device takes" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--images", "/no/images"], "/no/images"),
        (["--audio", "S=/no/features.h5"], "/no/features.h5"),
    ],
)
def test_data_that_is_not_there_is_one_line(arguments, words, tmp_path, capsys):
    assert reproduce_all(tmp_path / "out", *arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error
    assert not (tmp_path / "out").exists()


def test_a_set_that_is_none_is_named():
    with pytest.raises(argparse.ArgumentTypeError, match="S, M, L as S=FILE"):
        command.audio_file("XL=a.h5")


def browser():
    """Chromium without a window; skips where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium is installed: the page is not looked at")
    return found


#: Leaves what a page of a width finds of itself in its title.
LOOK = """<script>
addEventListener("load", () => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const seen = [...document.querySelectorAll("svg[role=img]")]
    .filter(one => one.getBoundingClientRect().width > 200 && one.getBoundingClientRect().height > 100);
  const out = [...document.querySelectorAll("body *")].filter(one => {
    const box = one.getBoundingClientRect();
    return !one.closest(".table, pre, svg") && box.right > document.documentElement.clientWidth + 1;
  });
  document.title = JSON.stringify([innerWidth, wide, seen.length, out.map(one => one.tagName)]);
});
</script></head>"""


@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_all_figures_and_nothing_overflows(made, width, tmp_path):
    """In a frame of that width: windows are never as narrow as 400 pixels."""
    program, text = browser(), (made[0] / "report.html").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(text.replace("</head>", LOOK), encoding="utf-8")
    frame = (
        f'<iframe src="page.html" style="width:{width}px;height:3000px;border:0" onload="setTimeout(() => '
    )
    frame += 'document.title = frames[0].document.title)"></iframe>'
    (tmp_path / "frame.html").write_text(f"<!DOCTYPE html><title>?</title>{frame}", encoding="utf-8")
    printed = subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
         f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000", "--window-size=1400,1000",
         "--dump-dom", (tmp_path / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    found = re.search(r"<title>(.*?)</title>", printed)
    assert found is not None
    figures = Reader(text).tags.count("svg")
    assert found.group(1) == f"[{width},0,{figures},[]]"


def test_a_browser_prints_the_page(made, tmp_path):
    subprocess.run(
        [browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         f"--print-to-pdf={tmp_path / 'page.pdf'}", (made[0] / "report.html").as_uri()],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    printed = (tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", printed)) >= 4
