"""Table 1 and figures 5 and 10: Jacobians of VGG-11, their zeros, and the work of scans over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bppsa_cupy.tools.paper import CONVOLUTION_FULL_MIB, CONVOLUTION_MIB, TABLE1
from bppsa_cupy.tools.pictures.jacobian_picture import COLOURS, KINDS
from bppsa_cupy.tools.pictures.svg import OURS, THEIRS, Panel
from bppsa_cupy.tools.pictures.svg import PAPER as GREY
from bppsa_cupy.tools.plans.flops import COMPUTED, PAPER
from bppsa_cupy.tools.reproduction.runs import unpacked
from bppsa_cupy.tools.reproduction.shown import (
    SAME,
    Results,
    Shown,
    Table,
    compared,
    in_words,
    ratio,
    seconds,
)

#: Colours and marks of figure 10.
STYLES = {"bp": (GREY, "o", "gradient operator of BP"), "mv": (OURS, "o", "matrix × vector"),
          "mm": (THEIRS, "s", "matrix × matrix")}  # fmt: skip


def table1(results: Results) -> Shown:
    """Sparsity and speed-up by operator."""
    rows, ratios, papers = [], [], []
    for layer, operator in TABLE1.items():
        found = {row["quantity"]: row for row in results.get(f"operator {layer}", ())}
        if not found:
            rows.append(
                [operator.name, "–", f"{operator.sparsity:.5f}", "–", "–", "–", _times(operator.speed_up)]
            )
            continue
        fill = found["fill"]
        ratios.append(fill["ratio"])
        papers.append(operator.speed_up)
        rows.append(
            [
                operator.name, f"{found['guaranteed sparsity']['ours']:.5f}", f"{operator.sparsity:.5f}",
                seconds(fill["ours"]), seconds(fill["theirs"]), _times(fill["ratio"]),
                _times(operator.speed_up),
            ]
        )  # fmt: skip
    head = ("operator", "zeros, ours", "paper", "our values in", "autograd in", "ratio, ours", "paper")
    caption = "Guaranteed zeros, and time to make the values of the first three transposed Jacobians, B = 1"
    sentence = (
        f"The ratio to autograd is above the paper's for {_above(ratios, papers)} of {len(ratios)} "
        "operators, and the fractions of guaranteed zeros are the paper's. The rival is PyTorch's autograd "
        "of today on this machine, columns sampled; a column costs it a fixed time, which decides the "
        "ratios of ReLU and max-pooling."
    )
    return Shown(compared(ratios, papers), sentence, tables=[Table(caption, head, rows)])


def _above(ratios: list[float], papers: list[float]) -> int:
    return sum(ours >= paper for ours, paper in zip(ratios, papers, strict=True))


def _times(value: float) -> str:
    return f"{ratio(value)}×"


def figure5(results: Results) -> Shown:
    """A corner of each transposed Jacobian, and all its zeros in numbers."""
    panels, rows, sentence = [], [], ""
    for layer, operator in TABLE1.items():
        found = results.get(f"zeros {layer}")
        if found is None:
            continue
        panels.append(_dots(operator.name, found))
        elements = found["shape"][0] * found["shape"][1]
        possible, stored = found["possible_zeros"], found["nnz"]
        rows.append(
            [
                operator.name, " × ".join(f"{size:,}" for size in found["shape"]), f"{stored - possible:,}",
                f"{possible:,}", f"{elements - stored:,}", f"{found['value_bytes'] / 2**20:.3g} MiB",
                f"{4 * elements / 2**20:,.0f} MiB",
            ]
        )  # fmt: skip
        if layer == 0:
            sentence = (
                f"The values of the convolution's Jacobian take {found['value_bytes'] / 2**20:.2f} MiB, the "
                f"paper says {CONVOLUTION_MIB} MB; the full matrix {4 * elements / 2**20:.0f} MiB, the "
                f"paper {CONVOLUTION_FULL_MIB:.0f} MB. "
            )
    head = (
        "operator", "shape", "non-zeros", "possible zeros", "guaranteed zeros", "values", "full matrix"
    )  # fmt: skip
    caption = "Elements of each transposed Jacobian for one image, and float32 bytes"
    sentence += (
        "The patterns follow from the layers' sizes alone. Where a window of max-pooling could choose "
        "another element, ours stores a possible zero."
    )
    return Shown(SAME, sentence, panels, [Table(caption, head, rows)])


def _dots(name: str, found: dict[str, Any]) -> Panel:
    def draw(axes: Any) -> None:
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch

        first_row, end_row, first_column, end_column = found["window"]
        axes.imshow(
            unpacked(found), cmap=ListedColormap(COLOURS), vmin=0, vmax=2, interpolation="none",
            aspect="auto", extent=(first_column, end_column, end_row, first_row),
        )  # fmt: skip
        axes.grid(False)
        axes.set(xlabel="element of the output", ylabel="element of the input")
        handles = [
            Patch(facecolor=c, edgecolor="black", label=k) for c, k in zip(COLOURS, KINDS, strict=True)
        ]
        axes.figure.legend(handles=handles, loc="outside lower center", ncols=3)

    height, width = found["size"]
    alt = (
        f"The first {height} rows and {width} columns of the transposed Jacobian of the {name}: nearly all "
        "elements are guaranteed zeros, the others lie in narrow bands."
    )
    return Panel(f"{name[0].upper()}{name[1:]}, upper left corner", alt, draw, (4.4, 3.9))


def figure10(results: Results) -> Shown:
    """FLOP of every step, of BP's operators and of each schedule."""
    networks = results["work"]["networks"]
    panels = [
        _steps(network, schedule)
        for network in networks[:1]
        for schedule in ("linear", PAPER, COMPUTED)
    ]  # fmt: skip
    rows = []
    for network in networks:
        base = [operator["flop"] for operator in _operators(network)]
        rows.append(
            [f"{network['network']}: BP's gradient operators", *map(_flop, (sum(base), sum(base), max(base)))]
        )
        for schedule in ("linear", "blelloch", PAPER, COMPUTED):
            of = [s for chain in network["chains"] for s in chain["schedules"] if s["name"] == schedule]
            sums = [sum(one[key] for one in of) for key in ("flop", "critical_path_flop")]
            rows.append(
                [
                    f"{network['network']}: {schedule}",
                    *map(_flop, (*sums, max(s["largest_step_flop"] for s in of))),
                ]
            )
    base, largest, critical = _extremes(networks[0])
    told = "The largest step of the paper's schedule"
    if largest > max(base):
        told += f" takes {_flop(largest)} FLOP here, and of BP's operators {_flop(max(base))}"
        told += ", where the paper sees similar work"
    else:
        told += (
            f" takes {_flop(largest)} FLOP, no more than the largest of BP's operators, {_flop(max(base))}"
        )
    sentence = (
        f"{told}; the schedule that ours computes has {_flop(critical)} on its critical path, BP "
        f"{_flop(sum(base))}. Our patterns hold every element that some input can make non-zero, so that "
        "products of products fill in."
    )
    verdict = in_words([largest <= max(base), critical < sum(base)])
    head = ("network and schedule", "work", "critical path", "largest step")
    return Shown(verdict, sentence, panels, [Table("FLOP of one sample, two a multiply-add", head, rows)])


def _operators(network: dict[str, Any]) -> list[dict[str, Any]]:
    return [operator for chain in network["chains"] for operator in chain["baseline"]]


def _extremes(network: dict[str, Any]) -> tuple[list[int], int, int]:
    """FLOP of BP's operators, of the largest step of the paper's schedule, and of our critical path."""
    of = {name: [s for chain in network["chains"] for s in chain["schedules"] if s["name"] == name]
          for name in (PAPER, COMPUTED)}  # fmt: skip
    largest = max(schedule["largest_step_flop"] for schedule in of[PAPER])
    critical = sum(schedule["critical_path_flop"] for schedule in of[COMPUTED])
    return [operator["flop"] for operator in _operators(network)], largest, critical


def _flop(value: float) -> str:
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:g}"


def _steps(network: dict[str, Any], schedule: str) -> Panel:
    def draw(axes: Any) -> None:
        axes.set(xscale="log", yscale="log", xlabel="FLOP if the Jacobians were dense", ylabel="FLOP")
        for kind, critical, x, y in _points(network, schedule):
            colour, mark, _ = STYLES[kind]
            axes.plot(x, y, mark, color=colour, markerfacecolor=colour if critical else "none", markersize=5)
        for colour, mark, label in STYLES.values():
            axes.plot([], [], mark, color=colour, label=label)
        axes.figure.legend(loc="outside lower center", ncols=3, handletextpad=0.1, columnspacing=1)

    alt = f"FLOP of each step of the schedule {schedule} against that of dense ones, beside BP's operators."
    return Panel(f"{schedule[0].upper()}{schedule[1:]}; filled: critical", alt, draw)


def _points(network: dict[str, Any], name: str) -> Iterator[tuple[str, bool, int, int]]:
    for operator in _operators(network):
        if operator["flop"]:
            yield "bp", False, operator["dense_flop"], operator["flop"]
    for chain in network["chains"]:
        for schedule in chain["schedules"]:
            for step in schedule["steps"] if schedule["name"] == name else ():
                if step["flop"]:
                    yield step["kind"], step["critical"], step["dense_flop"], step["flop"]
