"""What one gains, from measured results: the table of README.md and its picture.

    python docs/site/gains.py

Reads docs/results/*.json, and writes the lines between README.md's markers and docs/site/gains.svg.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "site" / "gains.svg"
BEGIN, END = "<!-- written by docs/site/gains.py -->\n\n", "\n<!-- end -->\n"

Row = dict[str, Any]


class Line(NamedTuple):
    """A line of the table.

    what      that is done
    rival     that the ratio is against
    file      of docs/results, without its ending
    quantity  of its rows that count, and `of` which cases
    tell      from their ratios, theirs / ours, to text
    """

    what: str
    rival: str
    file: str
    quantity: str
    of: Callable[[Row], bool]
    tell: Callable[[list[float]], str]


def ratios(values: list[float]) -> str:
    """One ratio, or several in their order."""
    return "; ".join(digits(value) for value in values)


def spread(values: list[float]) -> str:
    """Geometric mean, least and largest."""
    mean = math.exp(sum(map(math.log, values)) / len(values))
    return f"{digits(mean)} ({digits(min(values))} to {digits(max(values))})"


def digits(value: float) -> str:
    """Two digits that count: 0.87, 1.2, 41, 8,800."""
    value = float(f"{value:.1e}")
    return f"{value:,.{max(1 - math.floor(math.log10(value)), 0)}f}"


def cases(*names: str, against: str = "") -> Callable[[Row], bool]:
    """Rows whose case begins with one of the names, and their rival's so."""
    return lambda row: row["case"].startswith(names) and row["against"].startswith(against)


SIZES = "20 to 512 units, 1 to 64 × 100 or 1,000 steps"
INFERENCE = "64 to 512 units, 1 to 256 × 100 or 1,000 steps"
LINES = (
    Line("train an RNN: 20 units, 16 × 1,000 steps; 16 × 30,000", "PyTorch", "rnn", "overall",
         cases("T1000:", "T30000:"), ratios),
    Line("train a GRU: 20 units, 16 × 517 steps", "PyTorch", "gru", "overall", cases("M:"), ratios),
    *(Line(f"train an {cell.upper()}: {SIZES}".replace("an G", "a G"), "PyTorch", "recurrent", "overall",
           cases(f"{cell} ", against="PyTorch"), spread) for cell in ("rnn", "gru", "lstm")),
    Line("train all three: the same sizes", "`jax.lax.scan` in `jit`", "recurrent", "overall",
         cases("", against="jax"), spread),
    *(Line(f"run an {cell.upper()} without gradients: {INFERENCE}".replace("an G", "a G"), "PyTorch",
           "recurrent_inference", "overall", cases(f"{cell} ", against="PyTorch"), spread)
      for cell in ("rnn", "gru", "lstm")),
    Line("run all three without gradients: the same sizes", "`jax.lax.scan` in `jit`", "recurrent_inference",
         "overall", cases("", against="jax"), spread),
    Line("a GRU in a PyTorch model: 20 or 128 units, 1 or 16 × 100 or 1,000 steps", "`torch.nn.GRU`", "torch",
         "step", lambda row: row["against"].startswith("torch.nn"), spread),
    Line("train a LeNet-5: 64 images", "PyTorch", "train", "overall",
         lambda row: row["case"].endswith("2 threads, auto") and row["against"] == "PyTorch", ratios),
    Line("train a VGG-11 pruned by 97 %: 16 images, one thread", "SparseProp", "pruned_sparseprop", "overall",
         lambda row: row["case"].endswith("97 % B=16, 1 thread, bp") and row["against"] == "SparseProp",
         ratios),
    Line("train a VGG-11 pruned by 97 %: 16 images", "PyTorch, dense weights", "pruned_vgg11_auto", "overall",
         lambda row: row["case"].endswith("2 threads, auto") and row["against"] == "PyTorch", ratios),
    Line("multiply pruned VGG-11's Jacobians: first level; second level",
         "SciPy's `A @ B` on one thread, stored zeros left out", "spgemm", "product",
         lambda row: row["case"].endswith("sum, zeros left out"), ratios),
    Line("multiply sparse matrices whose patterns stay: 1, 16 or 64 samples", "SciPy's `A @ B` on one thread",
         "product", "product", lambda row: True, spread),
    Line("make the Jacobian of a convolution: 3 to 64 channels, 32 × 32",
         "PyTorch autograd, column by column: time of 200 columns × 65,536 / 200", "jacobians", "fill",
         cases("0 Conv2d"), ratios),
)  # fmt: skip


def read(name: str) -> dict[str, Any]:
    """A file of results. A ratio in it is theirs / ours."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def table() -> str:
    """The table, a line a kind of work, with the command that measured it."""
    lines = ["| task | rival | speed-up | measured by |", "|---|---|---|---|"]
    for line in LINES:
        results = read(line.file)
        rows = [row for row in results["rows"] if row["quantity"] == line.quantity and row["ratio"]]
        found = [row["ratio"] for row in rows if line.of(row)]
        link = f"[`{shortened(results['command'])}`](docs/results/{line.file}.json)"
        lines.append(f"| {line.what} | {line.rival} | {line.tell(found)} | {link} |")
    return "\n".join(lines) + "\n"


def shortened(command: str) -> str:
    """A command's first words; the file has it whole."""
    words = command.split()
    return " ".join(words[:4]) + (" …" if words[4:] else "")


# ---- the picture ----

WIDTH, HEIGHT = 600, 330
LEFT, RIGHT, TOP, BOTTOM = 66, 470, 52, 272
OURS, THEIRS, INK, FAINT = "#3f51b5", "#b3541e", "#333", "#ddd"


def picture() -> str:
    """Seconds of a training step by the number of steps, both axes logarithmic."""
    rows = [row for row in read("rnn")["rows"] if row["quantity"] == "overall" and "B=16 " in row["case"]]
    points = [(int(row["case"].split("T=")[1].split()[0]), row["ours"], row["theirs"]) for row in rows]

    def x(steps: float) -> float:
        return LEFT + (RIGHT - LEFT) * math.log10(steps / 10) / math.log10(3000)

    def y(seconds: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * math.log10(seconds / 5e-5) / math.log10(2 / 5e-5)

    parts = [text(20, 28, "One training step of an RNN on a CPU, by length of its sequences", weight=600)]
    for steps in (10, 100, 1000, 10000):
        parts += [rule(x(steps), TOP, x(steps), BOTTOM), text(x(steps), BOTTOM + 22, f"{steps:,}", "middle")]
    for seconds, name in ((1e-4, "0.1 ms"), (1e-3, "1 ms"), (1e-2, "10 ms"), (1e-1, "0.1 s"), (1, "1 s")):
        parts += [rule(LEFT, y(seconds), RIGHT, y(seconds)), text(LEFT - 8, y(seconds) + 5, name, "end")]
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 44, "steps; 20 units, 16 sequences", "middle"))
    for name, color, k in (("PyTorch", THEIRS, 2), ("bppsa-cupy", OURS, 1)):
        line = [(x(point[0]), y(point[k])) for point in points]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="3"/>')
        parts += [
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{color}"/>' for across, down in line
        ]
        across, down = line[-1]
        parts += [text(across + 12, down, name, color=color, weight=600)]
        parts += [text(across + 12, down + 18, duration(points[-1][k]), color=color)]
    for steps, ours, theirs in points[4::3]:
        parts.append(rule(x(steps), y(theirs) + 8, x(steps), y(ours) - 8, INK, "4 3"))
        words = f"{digits(theirs / ours)} times"
        if steps == points[-1][0]:
            parts.append(text(x(steps) + 12, (y(theirs) + y(ours)) / 2 + 5, words, weight=600))
        else:
            parts.append(text(x(steps) - 8, (y(theirs) + 2 * y(ours)) / 3 + 5, words, "end", weight=600))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="15" role="img">'
    )
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, anchor: str = "start", color: str = INK, weight: int = 400) -> str:
    """Words at a place."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{color}" font-weight="{weight}">{words}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, color: str = FAINT, dashes: str = "none") -> str:
    """A thin line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}" stroke-dasharray="{dashes}"/>'


def duration(seconds: float) -> str:
    """A time in the unit that fits."""
    return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds * 1e3:.2g} ms"


def page(readme: str) -> str:
    """README.md with the table of today's results."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table() + END + after


def main() -> None:
    """Write both."""
    README.write_text(page(README.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
