"""The page of what records hold: whole in itself, of any records, and sampled where there is much."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.records.records import step_records
from bppsa_cupy.tools import jacobians
from bppsa_cupy.tools.pictures import report as module


class Page(HTMLParser):
    """Tags that were opened, what is loaded, and whether all that is open is closed in order."""

    VOID = frozenset({"meta", "img", "input", "br", "link", "hr"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.loaded, self.ids = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        given = dict(attributes)
        self.loaded += [given[name] for name in ("src", "href") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def network():
    layers = [bp.Conv2d(1, 2, 3), bp.ReLU(), bp.Flatten(), bp.Linear(32, 3)]
    net = bp.Sequential(layers, input_shape=(1, 6, 6), seed=0, device="host")
    x = np.random.default_rng(0).standard_normal((4, 1, 6, 6)).astype(np.float32)
    net.backward(bp.cross_entropy(net.forward(x), np.arange(4) % 3)[1])
    return net.transposed_jacobians()


def steps(count=12, batch=3, size=5):
    rng = np.random.default_rng(0)
    return step_records("leaky", 0.4 * rng.standard_normal((count, batch, size, size)))


def assert_whole(report):
    page = Page(report.html)
    assert all(target.startswith(("data:image/png;base64,", "#")) for target in page.loaded)
    assert "script" not in page.tags and "http-equiv" not in report.html
    assert len(page.ids) == len(set(page.ids))
    return page


def test_layers_of_a_network(tmp_path):
    records = network()
    report = bp.report(records, title="A <small> network")
    page = assert_whole(report)
    assert "A &lt;small&gt; network" in report.html and "3 matrices of 3 layers" in report.html
    assert page.tags.count("img") == 2  # the linear layer has no guaranteed zeros
    assert "Spectra of layers" in report.html and "Gradients from layer to layer" in report.html
    relu = records[1]
    zeros = 1 - np.count_nonzero(relu.data) / (32 * 32 * 4)
    assert f"{1 - 32 / 32**2:.4%}</td><td>{zeros:.4%}" in report.html
    assert report.save(tmp_path / "page.html") == (tmp_path / "page.html").stat().st_size
    assert report._repr_html_().startswith("<iframe")


def test_steps_of_a_recurrence():
    report = bp.report(steps())
    page = assert_whole(report)
    assert page.tags.count("svg") == 4 and page.tags.count("img") == 0
    assert "0 leaky l0" in report.html and "≈" not in report.html and "Its curves" not in report.html


def test_much_is_sampled_and_the_page_says_so(monkeypatch):
    monkeypatch.setattr(module, "VALUES", 60)
    monkeypatch.setattr(module, "WORK", 5**3 * 8)
    monkeypatch.setattr(module, "PATTERNS", 1)
    text = bp.report([*network(), *steps()]).html
    assert "Its curves are of the first 1 of 3 samples and the last 8 of 12 steps." in text
    assert "counted on a sample of 60 values a layer" in text and "1 of 2 are drawn" in text


def test_what_is_not_finite_is_told():
    records = step_records("bad", np.full((3, 1, 2, 2), np.nan))
    assert "bad l0 holds NaN or infinity" in bp.report(records).html


def test_edges():
    assert_whole(bp.report(steps(1, 1, 1)))
    with pytest.raises(bp.ShapeError, match="report got no records"):
        bp.report([])


def test_the_command(tmp_path, capsys):
    path = tmp_path / "steps.h5"
    bp.save_jacobians(path, steps(4, 1, 2))
    assert jacobians.main(["report", str(path)]) == 0
    assert re.fullmatch(r".*steps\.html: [\d.]+ kB\n", capsys.readouterr().out)
    assert_whole(module.Report((tmp_path / "steps.html").read_text(encoding="utf-8")))
    assert jacobians.main(["report", str(path), "-o", str(tmp_path / "page.pdf")]) == 1
    assert "names no page: give a name that ends in .html" in capsys.readouterr().err
