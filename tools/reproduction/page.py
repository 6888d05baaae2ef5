"""The page: one HTML file that holds all it shows, without script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from bppsa_cupy.tools.pictures.svg import render
from bppsa_cupy.tools.reproduction.cells import Kept
from bppsa_cupy.tools.reproduction.shown import (
    BETTER,
    INCOMPARABLE,
    SAME,
    WORSE,
    Part,
    Shown,
    Table,
)

CLASSES = {BETTER: "better", WORSE: "worse", SAME: "same", INCOMPARABLE: "incomparable"}
PAPER = "<cite>BPPSA: Scaling Back-propagation by Parallel Scan Algorithm</cite> (Wang et al., MLSys 2020)"


@dataclass(frozen=True)
class Facts:
    """What the page says beside the parts.

    command   that wrote it
    profile   "quick" or "full"
    machine   as Store has it
    kept      finished runs, by name
    failures  why runs failed, by name
    """

    command: str
    profile: str
    machine: Mapping[str, Any]
    kept: Mapping[str, Kept]
    failures: Mapping[str, str]


def write_page(parts: Sequence[Part], facts: Facts) -> str:
    """The text of the page, of whatever runs are finished."""
    shown = {part.key: _shown(part, facts) for part in parts}
    names = [name for part in parts for name in part.cells]
    missing = [name for name in dict.fromkeys(names) if name not in facts.kept]
    style = files("bppsa_cupy.tools.pictures").joinpath("page.css").read_text(encoding="utf-8")
    body = [
        _header(facts, missing, len(set(names))),
        "<main>",
        _summary(parts, shown),
        *(_section(part, shown[part.key], facts) for part in parts),
        _machine(facts),
        "</main>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>The paper's tables and figures, by "
        f"bppsa-cupy</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _shown(part: Part, facts: Facts) -> Shown | None:
    """None where no run of the part is finished."""
    results = {name: facts.kept[name].result for name in part.cells if name in facts.kept}
    return part.show(results) if results else None


def _header(facts: Facts, missing: Sequence[str], count: int) -> str:
    taken = _duration(sum(kept.seconds for kept in facts.kept.values()))
    text = (
        "<header>\n<h1>The paper's tables and figures, made again</h1>\n"
        f'<p class="lead">{PAPER}. Every number and curve below, but those called the paper\'s, is of a '
        f"run on "
        f'the machine at <a href="#machine">the end</a>: {_runs_in_words(count - len(missing))}, {taken}, '
        f"{escape(facts.profile)} settings.</p>\n"
    )
    if missing:
        text += (
            f'<p class="notice" role="status">{len(missing)} of {count} runs are not there yet: '
            f"{escape(_listed(missing))}. The command at the end goes on with them.</p>\n"
        )
    return text + "</header>"


def _listed(names: Sequence[str], most: int = 6) -> str:
    """Some names: "a, b and 3 more"."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def _runs_in_words(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _summary(parts: Iterable[Part], shown: Mapping[str, Shown | None]) -> str:
    rows = []
    for part in parts:
        one = shown[part.key]
        said = "No run of it is finished." if one is None else escape(_first(one.sentence))
        rows.append(
            f'<tr><th scope="row"><a '
            f'href="#{part.key}">{escape(part.name)}</a></th><td>{escape(part.title)}</td>'
            f"<td>{_badge(one)}</td><td>{said}</td></tr>"
        )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("in the paper", "what", "ours is", "why"))
    return (
        '<section aria-labelledby="summary"><h2 id="summary">In short</h2>\n'
        "<p>Ours is judged by its ratio to its baseline beside the paper's ratio to the paper's baseline, "
        "or by "
        'what the paper says where there is no ratio.</p>\n<table class="words">'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>" + "\n".join(rows) + "</tbody></table></section>"
    )


def _first(sentence: str) -> str:
    """The first sentence of some."""
    return sentence.split(". ")[0].rstrip(".") + "."


def _badge(shown: Shown | None) -> str:
    word = "missing" if shown is None else shown.verdict
    kind = "missing" if shown is None else CLASSES.get(word, "mixed")
    return f'<span class="badge {kind}">{word}</span>'


def _section(part: Part, shown: Shown | None, facts: Facts) -> str:
    text = [
        f'<section id="{part.key}" aria-labelledby="{part.key}-title">',
        f'<h2 id="{part.key}-title">{escape(part.name)} <span>{escape(part.title)}</span></h2>',
        f'<p class="about">The paper: {escape(part.about)}</p>',
    ]
    missing = [name for name in part.cells if name not in facts.kept]
    if missing:
        text.append(f'<p class="notice">{escape(_why_missing(missing, len(part.cells), facts.failures))}</p>')
    if shown is not None:
        text.append(f"<p>{_badge(shown)} {escape(shown.sentence)}</p>")
        if shown.panels:
            kind = {1: " single", 2: " pair"}.get(len(shown.panels), "")
            text.append(f'<div class="panels{kind}">')
            for number, panel in enumerate(shown.panels, 1):
                drawing = render(panel, f"{part.key}-{number}")
                text.append(f"<figure><figcaption>{escape(panel.title)}</figcaption>\n{drawing}</figure>")
            text.append("</div>")
        text += map(_table, shown.tables)
    text.append(_runs(part, facts))
    return "\n".join([*text, "</section>"])


def _why_missing(missing: Sequence[str], count: int, failures: Mapping[str, str]) -> str:
    told = f"{len(missing)} of {count} runs are missing: {_listed(missing)}."
    failed = [name for name in missing if name in failures]
    return told + (f" {failed[0]}: {failures[failed[0]]}." if failed else "")


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.head)
    rows = []
    for first, *cells in table.rows:
        texts = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{escape(first)}</th>{texts}</tr>')
    caption = escape(table.caption)
    return (
        f'<figure class="data"><figcaption>{caption}</figcaption>\n'
        f'<div class="table" tabindex="0" role="region" aria-label="{caption}"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>" + "\n".join(rows) + "</tbody></table></div></figure>"
    )


def _runs(part: Part, facts: Facts) -> str:
    """The runs a part is made of, with settings and seconds."""
    there = [facts.kept[name] for name in part.cells if name in facts.kept]
    if not there:
        return ""
    lines = []
    for kept in there:
        settings = " ".join(f"{name}={value}" for name, value in kept.settings.items())
        lines.append(f"{kept.name} ({kept.seconds:.1f} s): {settings}")
    told = f"{_runs_in_words(len(there))}, {_duration(sum(kept.seconds for kept in there))}"
    text = escape("\n".join(lines))
    return f"<details><summary>{told}</summary><pre><code>{text}</code></pre></details>"


def _machine(facts: Facts) -> str:
    machine = facts.machine["machine"]
    entries = {
        "processor": f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads used",
        "GPU": machine["gpu"] or "none used: nothing here is a GPU's time",
        "versions": ", ".join(f"{name} {version}" for name, version in facts.machine["versions"].items()),
    }
    entries = {name: escape(str(value)) for name, value in entries.items()}
    entries["command"] = f"<code>{escape(facts.command)}</code>"
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in entries.items())
    failed = "".join(
        f'<p class="notice">{escape(name)} failed: {escape(why)}</p>' for name, why in facts.failures.items()
    )
    return (
        '<section id="machine" aria-labelledby="machine-title">'
        f'<h2 id="machine-title">Machine, versions, command</h2>\n<dl>{rows}</dl>{failed}\n'
        "<footer><p>Times are wall-clock; sides of a comparison take turns in one run, each in a process "
        "of its "
        "own, and what they compute is compared. The same command goes on where it was stopped, and makes "
        "a run again only where code, settings or machine have changed.</p></footer></section>"
    )


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return (
        f"{seconds:.0f} s" if minutes < 2 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
    )
