"""What the command lines share: parsers, arguments of several commands, exit codes, errors on one line.

Importing this module, and each module that builds a parser from it, imports nothing that compiles: `--help`
takes a fraction of a second. What a command runs is named as "module:function" and imported when it runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from bppsa_cupy.system.complaint import STATED, complaint
from bppsa_cupy.system.files import write_text
from bppsa_cupy.tools import choices

UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
#: Data that commands read, as their help describes it.
DATA = (
    "`digits`, or the data at this path: binary files of CIFAR-10, IDX files, an .npz file, or sequences of "
    "bppsa-data"
)
#: Arguments of recurrent models, by the names of their factories' parameters.
RECURRENT_OPTIONS = (
    "hidden_size", "num_layers", "bidirectional", "outputs", "forward_method",
)  # fmt: skip


# ---- parsers ----


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help with the default of each option that has one. A flag is off by default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, default = action.help, action.default
        if isinstance(action, argparse._StoreTrueAction):
            default = "off"
        if text is not None and action.required and action.option_strings:
            return f"{text} Required."
        if text is None or "Default" in text or default in (None, argparse.SUPPRESS):
            return text
        shown = " ".join(map(str, default)) if isinstance(default, (list, tuple)) else default
        return f"{text} Default: {shown}.".replace("%", "%%")


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors take two lines, and whose help ends with an example."""

    def __init__(self, *, example: str | None = None, **options: Any) -> None:
        options["epilog"] = None if example is None else f"Example:\n  {example}"
        super().__init__(**{"formatter_class": Formatter, **options})

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"{self.prog}: error: {message}\nRun {self.prog} --help for its options.\n")


def command(name: str, description: str | None, example: str) -> Parser:
    """The parser of an installed command, with --version."""
    result = Parser(prog=name, description=description, example=example)
    result.add_argument(
        "--version", action="version", version=f"{name} {version('bppsa-cupy')}", help="Print the version."
    )
    return result


def warn(text: str) -> None:
    """Say on stderr, as one line, what the user should know of."""
    print(f"warning: {' '.join(text.split())}", file=sys.stderr)


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    """Show a RuntimeWarning in the block as `warn` does, and others as Python does."""
    with warnings.catch_warnings():
        as_python_does = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, RuntimeWarning):
                warn(str(message))
            else:
                as_python_does(message, category, *where, **more)

        warnings.showwarning = show
        yield


def imported(name: str) -> Any:
    """The function that "module:function" names, of a module of the tools."""
    module, _, function = name.partition(":")
    return getattr(import_module(f"bppsa_cupy.tools.{module}"), function)


def run_command(main: Callable[[argparse.Namespace], None] | str, arguments: argparse.Namespace) -> int:
    """Call `main`, or the function that it names.

    Returns the exit code: 0 done; 1 after a stated error, which goes to stderr as one line; 130 after Ctrl-C.
    A RuntimeWarning goes to stderr as one line, too.
    """
    with _warnings_on_one_line():
        try:
            (imported(main) if isinstance(main, str) else main)(arguments)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has seen enough, as head does; nothing may be flushed to it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except STATED as error:
            text, code = complaint(error)
            print(f"error: {text}", file=sys.stderr)
            return code
        return 0


def write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    """Write a JSON document that replaces `path` when it is complete. Raises BppsaError where it cannot."""
    write_text(path, json.dumps(value, indent=indent) + "\n")


# ---- types of arguments ----


def shape(text: str) -> tuple[int, ...]:
    """The argument type of a shape: "3,32,32"."""
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1 or math.prod(sizes) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape: give positive integers such as 3,32,32")
    return sizes


def byte_size(text: str) -> int:
    """The argument type of a number of bytes: "2GiB", "500M", "4096"."""
    lowered = text.strip().lower().removesuffix("b")
    number = lowered.rstrip("kmgi")
    unit = lowered[len(number) :]
    try:
        size = float(number) * UNITS[unit]
        if not 0 <= size < 2**63:
            raise ValueError
        return int(size)
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size: give bytes such as 4096, 500M or 2GiB"
        ) from None


def fraction(text: str) -> float:
    """The argument type of a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a fraction: give a number from 0 to 1, such as 0.97"
        )
    return value


def positive(text: str) -> int:
    """The argument type of a positive integer."""
    return _integer(text, 1, "not a positive integer")


def positive_list(text: str) -> list[int]:
    """The argument type of positive integers, each once and sorted: "1,2,4"."""
    return sorted({positive(number.strip()) for number in text.split(",")})


def not_negative(text: str) -> int:
    """The argument type of an integer from 0 on."""
    return _integer(text, 0, "not an integer of at least 0")


def _integer(text: str, least: int, complaint: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is {complaint}" + (" below 2**63" if value > 0 else ""))
    return value


def names_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """The argument type of some of the known names: "rnn,lstm"."""

    def chosen(text: str) -> list[str]:
        names = list(dict.fromkeys(name.strip() for name in text.split(",")))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown: pass names from {', '.join(known)}")
        return names

    return chosen


def bounds(text: str) -> tuple[int, ...]:
    """The argument type of a partition: "0,4,9"."""
    try:
        return tuple(int(bound) for bound in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a partition: give integers such as 0,4,9"
        ) from None


def placement(text: str) -> tuple[int, ...] | int:
    """The argument type of a pipeline placement: "7,13", or "balanced:2", which is the number of cuts."""
    if match := re.fullmatch(r"balanced:(\d+)", text.strip()):
        return int(match[1])
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a placement: give layer numbers such as 7,13, or balanced:K"
        ) from None


def taken(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options of these names, for a function whose parameters are called so."""
    return {name: getattr(arguments, name) for name in names}


def specified(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of `taken` that the command line has, or that have a default."""
    return {name: value for name, value in taken(arguments, *names).items() if value is not None}


# ---- arguments of several commands ----


def add_output(parser: argparse.ArgumentParser, metavar: str, meaning: str, *, required: bool = True) -> None:
    """-o, --output."""
    parser.add_argument("-o", "--output", type=Path, required=required, metavar=metavar, help=meaning)


def add_model(parser: argparse.ArgumentParser, *, required: bool = True, default: str = "") -> None:
    """The MODEL argument, and the options that shape the network; `default` describes an optional MODEL."""
    known = ", ".join(choices.MODELS)
    parser.add_argument(
        "model", metavar="MODEL", nargs=None if required else "?",
        help=f"Build this model: {known}, path/to/file.py:factory or module:factory."
        + f" Default: {default}." * (not required),
    )  # fmt: skip
    add_network_options(parser)


def add_device(parser: argparse._ActionsContainer) -> None:
    """--device."""
    other = {"gpu": "cuda", "cpu": "host"}
    parser.add_argument(
        "--device", type=lambda n: other.get(n, n), choices=("auto", "cuda", "host"), default="auto",
        help="Run on a GPU (cuda or gpu) or on the CPU (host or cpu). auto uses a GPU if there is one.",
    )  # fmt: skip


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """--dtype."""
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), default="float32",
        help="Compute in this dtype. Default: float32.",
    )  # fmt: skip


def add_batch_size(
    parser: argparse._ActionsContainer, default: int | None, meaning: str = "Set the batch size."
) -> None:
    """--batch-size."""
    parser.add_argument("--batch-size", type=positive, default=default, metavar="B", help=meaning)


def add_micro_batches(parser: argparse._ActionsContainer, default: int | None, meaning: str = "") -> None:
    """--micro-batches."""
    parser.add_argument(
        "--micro-batches", type=positive, default=default, metavar="M",
        help="Split a batch into M micro-batches, in schedules that use them." + meaning,
    )  # fmt: skip


def add_mode(parser: argparse.ArgumentParser) -> None:
    """--eval."""
    parser.add_argument(
        "--eval", dest="evaluation", action="store_true",
        help="Use evaluation mode, in which the scan includes batch normalisation. Default: training mode.",
    )  # fmt: skip


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """--input-shape, --classes, --seed, --dtype, --device, --prune, --prune-scope, --from, and those of
    RECURRENT_OPTIONS."""
    parser.add_argument(
        "--input-shape", type=shape, metavar="SHAPE",
        help="Set the shape of a sample: C,H,W for images, T,F for sequences. Default: set by MODEL.",
    )  # fmt: skip
    parser.add_argument(
        "--classes", type=positive, metavar="N",
        help="Set the number of classes. Default: the number in the data, or of the model.",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=not_negative, default=0, metavar="N",
        help="Seed the initial parameters and the order of the samples. Default: 0.",
    )  # fmt: skip
    add_dtype(parser)
    add_device(parser)
    parser.add_argument(
        "--prune", type=fraction, metavar="F",
        help="Prune this share of the weights before the start, for example 0.97. Default: 0.",
    )  # fmt: skip
    parser.add_argument(
        "--prune-scope", choices=choices.SCOPES,
        help="Prune the share in each layer, or over all layers together. Default: layer.",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="start", type=Path, metavar="CHECKPOINT",
        help="Start from the parameters and masks of this checkpoint or PyTorch state dict. Default: initial "
        "parameters.",
    )  # fmt: skip
    recurrent = parser.add_argument_group(
        "recurrent models", "Options of rnn, gru, lstm and factories that accept them."
    )
    for option, meaning in (
        ("hidden-size", "Set the number of units per layer to N. Default: 20."),
        ("num-layers", "Set the number of layers to N. Default: 1."),
    ):
        recurrent.add_argument(f"--{option}", type=positive, metavar="N", help=meaning)
    recurrent.add_argument(
        "--bidirectional", action="store_true", default=None, help="Process the sequence in both directions."
    )
    recurrent.add_argument(
        "--outputs", choices=choices.OUTPUTS,
        help="Compute scores of the last state, or at every step. Default: chosen by the labels.",
    )  # fmt: skip
    recurrent.add_argument(
        "--forward-method", choices=choices.FORWARD_METHODS,
        help="Use this method for the forward pass over time. Default: auto.",
    )  # fmt: skip


def add_partition(parser: argparse._ActionsContainer, default: str) -> None:
    """--partition."""
    parser.add_argument(
        "--partition", type=bounds, metavar="0,I,…,N",
        help=f"Give the first layer of each rank, then the number of layers. Default: {default}.",
    )  # fmt: skip


def add_ppv(parser: argparse._ActionsContainer, default: str | None) -> None:
    """--ppv."""
    parser.add_argument(
        "--ppv", type=placement, required=default is None, metavar="P,…",
        help="Cut the network after these layers, for example 7,13. Convolutions and linear layers count, "
        "from 1. balanced:K makes K cuts that balance multiply-adds."
        + ("" if default is None else f" Default: {default}."),
    )  # fmt: skip


def add_cells(parser: argparse.ArgumentParser, default: list[str]) -> None:
    """--cells."""
    parser.add_argument(
        "--cells", type=names_of(("rnn", "gru", "lstm")), default=default, metavar="NAME,NAME",
        help="Measure these cells: rnn, gru, lstm.",
    )  # fmt: skip
