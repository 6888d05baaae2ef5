"""The list of what the page has: each table and figure, the runs it is made of, and what shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bppsa_cupy.tools.benchmarks.sequences import batch_case, group_case, length_case
from bppsa_cupy.tools.pictures.svg import OURS, SCAN, THEIRS, Panel
from bppsa_cupy.tools.reproduction import operators, speed, trainings
from bppsa_cupy.tools.reproduction.lenet5 import labels
from bppsa_cupy.tools.reproduction.profiles import Profile
from bppsa_cupy.tools.reproduction.shown import INCOMPARABLE, SAME, Part, Results, Shown, Table
from bppsa_cupy.tools.reproduction.space import FORMULAE

#: Colour and mark of a method in the figure of appendix B.
MARKS = {"BPPSA": (OURS, "o"), "GPipe": (THEIRS, "s"), "PipeDream": (SCAN, "^")}


def make_parts(profile: Profile) -> list[Part]:
    """The parts in the paper's order."""
    lengths = [f"rnn {length_case(T)}" for T in profile.lengths]
    batches = [f"rnn {batch_case(B)}" for B in profile.batches]
    groups = [f"gru {group_case(*group)}" for group in profile.groups]
    images = [f"LeNet-5 {dtype} {run}" for dtype in profile.dtypes for run in labels(dtype)]
    return [
        Part("Table 1", "Jacobians made analytically",
             "How sparse the transposed Jacobians of VGG-11's first operators are, and how much sooner "
             "analytical "
             "routines have their values than autograd.", _of("operator", profile.layers), operators.table1),
        Part("Figure 5", "Where the zeros are",
             "Transposed Jacobians as dots: non-zeros, possible zeros, guaranteed zeros.",
             _of("zeros", profile.layers), operators.figure5),
        Part("Figure 6", "The scan trains as back-propagation does",
             "LeNet-5 on CIFAR-10 by both: the same losses.", images, trainings.lenet5),
        Part("Figure 7", "Training an RNN on bitstreams",
             "Loss by wall-clock time at T = 1000, B = 16: PyTorch with cuDNN, and BPPSA.",
             _of("RNN", profile.dtypes), trainings.rnn),
        Part("Figure 8", "The RNN by sequence length and batch",
             "Latency and speed-up of the way back, and where the time goes, by T and by 1/B.",
             list(dict.fromkeys([*lengths, *batches])), speed.figure8),
        Part("Figure 9", "The GRU by set and batch",
             "Where the time goes, beside the baseline's.", groups, speed.figure9),
        Part("Figure 10", "Work of the steps for a pruned VGG-11",
             "FLOP of every step of the scan over the Jacobians of VGG-11 pruned by 97 %, beside the "
             "gradient operators of back-propagation.", ["work"], operators.figure10),
        Part("Appendix B", "Space a device takes",
             "Pipelines keep activations for every batch on its way, so that a device's space grows with "
             "the number of devices; BPPSA's does not.", ["space"], appendix_b),
        Part("Figure 13", "Training a GRU on audio", "Loss by wall-clock time for the sets S, M and L.",
             [f"GRU {name} {dtype}" for name in profile.sets for dtype in profile.dtypes], trainings.gru),
        Part("Table 4", "An epoch of the RNN by length", "Seconds of an epoch on a V100, B = 16.",
             lengths, speed.table4),
        Part("Table 5", "An epoch of the RNN by batch", "Seconds of an epoch on a V100, T = 1000.",
             batches, speed.table5),
        Part("Table 6", "An epoch of the GRU", "Seconds of an epoch on a V100, by set and batch.",
             groups, speed.table6),
    ]  # fmt: skip


def _of(kind: str, names: Iterable[Any]) -> list[str]:
    return [f"{kind} {name}" for name in names]


def appendix_b(results: Results) -> Shown:
    """Formulae as lines, schedules as marks, and both in a table."""
    found = results["space"]
    layers, devices = found["layers"], found["devices"]
    rows = []
    for position, count in enumerate(devices):
        cells = []
        for name, (formula, _) in FORMULAE.items():
            cells += [f"{formula(layers, count):g}", f"{found[name][position]:g}"]
        rows.append([str(count), *cells, str(found["weight_versions"][position])])
    head = ["devices K"]
    for name in FORMULAE:
        head += [f"{name}: formula", "simulated"]
    caption = f"Space of the fullest device for {layers} layers: M_Jacob of BPPSA, M_x a sample of pipelines"
    sentence = (
        f"As the paper says: at K = {devices[-1]} a device of GPipe holds {found['GPipe'][-1]:g} layers' "
        f"activations and one of BPPSA {found['BPPSA'][-1]:g} Jacobians. The schedules follow the formulae; "
        "BPPSA's holds up to half as much again, for the products of its up-sweep that wait for the "
        "down-sweep. A Jacobian takes more than an activation, so that the curves' heights cannot be "
        "compared, their slopes can."
    )
    table = Table(caption, [*head, "PipeDream's weights"], rows)
    return Shown(SAME if devices else INCOMPARABLE, sentence, [_space(found)], [table])


def _space(found: dict[str, Any]) -> Panel:
    layers, devices = found["layers"], found["devices"]

    def draw(axes: Any) -> None:
        for name, (colour, mark) in MARKS.items():
            formula, text = FORMULAE[name]
            axes.plot(
                devices, [formula(layers, count) for count in devices], color=colour, label=f"{name}: {text}"
            )
            axes.plot(
                devices, found[name], mark, color=colour, markerfacecolor="none", label=f"{name}, simulated"
            )
        axes.set(xlabel="devices K", ylabel="space, in M_x or M_Jacob")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.figure.legend(loc="outside lower center", ncols=2)

    alt = (
        f"Space of the fullest device by number of devices for {layers} layers: BPPSA's falls, GPipe's "
        "falls and rises again, PipeDream's stays; simulated schedules lie on the formulae's lines."
    )
    return Panel(f"{layers} layers; lines: formulae, marks: schedules", alt, draw, (5.2, 4.4))
