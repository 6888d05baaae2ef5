"""What the command lines share: errors on one line, arguments of several tools, models."""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bppsa_cupy.data import Dataset
from bppsa_cupy.errors import BppsaError, CheckpointError, ShapeError, reason_of
from bppsa_cupy.layers.linear_recurrent import LinearRecurrent
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.layers.recurrent import OUTPUTS
from bppsa_cupy.models import MODELS, build_model, find_factory
from bppsa_cupy.models.recurrent import CELLS
from bppsa_cupy.network.prune import SCOPES, prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.system.complaint import STATED, complaint, for_want_of_memory
from bppsa_cupy.system.files import write_text
from bppsa_cupy.system.interrupts import one_interrupt
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint

UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
#: Arguments of recurrent models, by the names of their factories' parameters.
RECURRENT_OPTIONS = (
    "cell", "hidden_size", "num_layers", "bidirectional", "outputs", "forward_method", "heads",
)  # fmt: skip


def command(name: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of an installed command, with --version."""
    result = argparse.ArgumentParser(prog=name, description=description)
    result.add_argument("--version", action="version", version=f"{name} {version('bppsa-cupy')}")
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


def run(main: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """Exit code of `main`: 0 done, 1 a stated error, which goes to stderr as one line; 130 after Ctrl-C.

    A RuntimeWarning goes to stderr as one line, too.
    """
    with one_interrupt(), _warnings_on_one_line():
        try:
            main(arguments)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has seen enough, as head does; nothing may be flushed to it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except ImportError as error:
            if not for_want_of_memory(error):
                raise
            print(f"error: {complaint(MemoryError(str(error)))[0]}", file=sys.stderr)
            return 1
        except STATED as error:
            text, code = complaint(error)
            print(f"error: {text}", file=sys.stderr)
            return code
        return 0


def write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    """Write a JSON document that replaces `path` when it is whole. Raises BppsaError where it cannot."""
    write_text(path, json.dumps(value, indent=indent) + "\n")


def shape(text: str) -> tuple[int, ...]:
    """The argument type of a shape: "3,32,32"."""
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1 or math.prod(sizes) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape: give positive integers as 3,32,32")
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
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give bytes as 4096, 500M or 2GiB") from None


def fraction(text: str) -> float:
    """The argument type of a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no fraction: give a number from 0 to 1, as 0.97")
    return value


def positive(text: str) -> int:
    """The argument type of a positive integer."""
    return _integer(text, 1, "no positive integer")


def positive_list(text: str) -> list[int]:
    """The argument type of positive integers, each once and sorted: "1,2,4"."""
    return sorted({positive(one.strip()) for one in text.split(",")})


def not_negative(text: str) -> int:
    """The argument type of an integer from 0 on."""
    return _integer(text, 0, "no integer from 0 on")


def _integer(text: str, least: int, complaint: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is {complaint}" + (" below 2**63" if value > 0 else ""))
    return value


def taken(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options of these names, for a function whose parameters are called so."""
    return {name: getattr(arguments, name) for name in names}


def given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of `taken` that the command line has, or that have a default."""
    return {name: value for name, value in taken(arguments, *names).items() if value is not None}


def add_model(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """The MODEL argument, and the options that shape the network."""
    known = ", ".join(MODELS)
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs=None if required else "?",
        help=f"{known}, path/to/file.py:factory or module:factory",
    )
    add_network_options(parser)


def add_device(parser: argparse._ActionsContainer) -> None:
    """--device."""
    names, other = ("auto", "cuda", "host"), {"gpu": "cuda", "cpu": "host"}
    told = "cuda (or gpu), host (or cpu); auto takes a GPU where there is one (default auto)"
    parser.add_argument("--device", type=lambda n: other.get(n, n), choices=names, default="auto", help=told)


def add_mode(parser: argparse.ArgumentParser) -> None:
    """--eval."""
    parser.add_argument(
        "--eval", dest="evaluation", action="store_true",
        help="in evaluation mode, where batch normalisation is an element of the scan (default: in training)",
    )  # fmt: skip


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """--input-shape, --classes, --seed, --dtype, --device, --prune, --prune-scope, --from, and those of
    RECURRENT_OPTIONS."""
    parser.add_argument(
        "--input-shape", type=shape, metavar="SHAPE",
        help="of one sample: C,H,W of images, T,F of sequences (steps, features)",
    )  # fmt: skip
    parser.add_argument("--classes", type=positive, metavar="N", help="of the output")
    parser.add_argument("--seed", type=not_negative, default=0, help="of parameters and order (default 0)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    add_device(parser)
    parser.add_argument("--prune", type=fraction, metavar="F", help="prune this part of the weights, as 0.97")
    parser.add_argument(
        "--prune-scope", choices=SCOPES, help="F of every layer, or of all together (default layer)"
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="CHECKPOINT",
        help="parameters and masks to start from, and to prune: a checkpoint, or a state dict of PyTorch "
        "(default: the initial ones of --seed)",
    )
    recurrent = parser.add_argument_group(
        "recurrent models", "of rnn, gru, lstm, cell and factories that take them"
    )
    recurrent.add_argument(
        "--cell", metavar="CELL",
        help=f"of the model cell: {', '.join(CELLS)}, path/to/file.py:factory or module:factory",
    )  # fmt: skip
    recurrent.add_argument("--hidden-size", type=positive, metavar="H", help="units a layer (default 20)")
    recurrent.add_argument("--num-layers", type=positive, metavar="N", help="layers (default 1)")
    recurrent.add_argument("--bidirectional", action="store_true", default=None, help="both directions")
    recurrent.add_argument(
        "--outputs",
        choices=OUTPUTS,
        help="scores of the last state, or at every step (default: as labels are)",
    )
    recurrent.add_argument(
        "--forward-method",
        choices=list(dict.fromkeys((*MatrixRecurrent.forward_methods, *LinearRecurrent.forward_methods))),
        help="of the pass over time (default auto)",
    )
    recurrent.add_argument(
        "--heads", type=positive, metavar="N", help="blocks of units that see each other alone (default 1)"
    )


def make_network(arguments: argparse.Namespace, dataset: Dataset | None = None) -> Sequential:
    """The network of `add_model`'s arguments; what they leave open of its sizes is what `dataset` needs.

    It has the parameters and masks of the checkpoint that --from names, and is pruned as --prune says.
    """
    gradually = getattr(arguments, "prune_to", None) is not None
    if arguments.prune is None and arguments.prune_scope is not None and not gradually:
        raise BppsaError("--prune-scope says how to prune: give --prune F with it")
    wanted, classes = arguments.input_shape, arguments.classes
    if dataset is not None:
        wanted, classes = wanted or dataset.input_shape, classes or dataset.classes
    network = build_model(
        arguments.model,
        input_shape=wanted,
        classes=classes,
        **taken(arguments, "seed", "dtype", "device"),
        **_recurrent_options(arguments, dataset),
    )
    if arguments.start is not None and _is_of_torch(arguments.start):
        load_torch(network, arguments.start)
    elif arguments.start is not None:
        checkpoint = load_checkpoint(arguments.start)
        take_masks(network, checkpoint)
        network.load_state_dict(checkpoint.parameters)
    if getattr(arguments, "evaluation", False):
        network.eval()
    if arguments.prune is not None:
        prune(network, arguments.prune, arguments.prune_scope or "layer")
    return network


def _recurrent_options(arguments: argparse.Namespace, dataset: Dataset | None) -> dict[str, Any]:
    """The options of recurrent models that were given; raises BppsaError where the model takes none of the
    name. A data set with a label at every step asks for outputs at every step."""
    options = given(arguments, *RECURRENT_OPTIONS)
    known = inspect.signature(find_factory(arguments.model)).parameters
    for name in options:
        if name not in known:
            models = "the model cell" if name == "cell" else "recurrent models"
            raise BppsaError(
                f"--{name.replace('_', '-')} is of {models}, and {arguments.model!r} takes no {name}: "
                "leave it out"
            )
    if dataset is not None and dataset.per_step and "outputs" in known:
        options.setdefault("outputs", "all")
    if dataset is not None and dataset.vocabulary is not None and "tokens" in known:
        options["tokens"] = dataset.classes
    return options


def _is_of_torch(path: Path) -> bool:
    """Whether torch.save wrote a file: a zip archive, or a pickle of older versions."""
    try:
        with open(path, "rb") as file:
            return file.read(4).startswith((b"PK\x03\x04", b"\x80"))
    except OSError:  # load_checkpoint names the cause
        return False


def load_torch(network: Sequential, path: Path) -> None:
    """Load a state dict that torch.save wrote, or the only one in a dict of several things.

    Layers are paired by name, else by their order. Masks of torch.nn.utils.prune are set.
    Raises CheckpointError.
    """
    try:
        import torch
    except ImportError as cause:
        raise CheckpointError(f"{path} was written by PyTorch: install torch to read it") from cause
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as cause:
        raise CheckpointError(
            f"{path} cannot be read by torch.load ({reason_of(cause)}): save the model's state_dict()"
        ) from cause

    def is_state(value: Any) -> bool:
        return isinstance(value, dict) and bool(value) and all(map(torch.is_tensor, value.values()))

    states = [content] if is_state(content) else []
    if not states and isinstance(content, dict):
        states = [value for value in content.values() if is_state(value)]
    if len(states) != 1:
        raise CheckpointError(f"{path} holds {len(states)} state dicts: save one, as model.state_dict()")
    try:
        network.load_state_dict(states[0])
    except (CheckpointError, ShapeError):
        network.load_state_dict(states[0], by_order=True)


def take_masks(network: Sequential, checkpoint: Checkpoint) -> None:
    """Give the network the checkpoint's masks. Raises CheckpointError for one of another network or dtype."""
    with suppress(ShapeError):  # told below, with all that differs
        network.set_masks(checkpoint.masks)
    checkpoint.check(network.describe(), network.dtype.name)
