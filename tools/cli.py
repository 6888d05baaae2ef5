"""What the command lines share: errors on one line, arguments of several tools, models."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from bppsa_cupy.checkpoint import Checkpoint, load_checkpoint
from bppsa_cupy.errors import BppsaError, ShapeError
from bppsa_cupy.interrupts import one_interrupt
from bppsa_cupy.memory import free_host_memory
from bppsa_cupy.models import MODELS, build_model
from bppsa_cupy.network import Sequential
from bppsa_cupy.prune import SCOPES, prune

UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}


def run(main: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """Exit code of `main`: 0 done, 1 a stated error, which goes to stderr as one line; 130 after Ctrl-C."""
    with one_interrupt():
        try:
            main(arguments)
        except (BppsaError, OSError) as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            return 1
        except MemoryError as error:
            print(
                f"error: too little memory: {' '.join(str(error).split()) or 'an allocation failed'}; "
                f"{free_host_memory()} bytes are free: use a smaller batch or network, or raise "
                "the limit (ulimit -v)",
                file=sys.stderr,
            )
            return 1
        except KeyboardInterrupt:
            print("error: interrupted; nothing half written is left", file=sys.stderr)
            return 130
        return 0


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


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """--input-shape, --classes, --seed, --dtype, --device, --prune, --prune-scope, --from."""
    parser.add_argument("--input-shape", type=shape, metavar="C,H,W", help="of one sample")
    parser.add_argument("--classes", type=positive, metavar="N", help="of the output")
    parser.add_argument("--seed", type=not_negative, default=0, help="of parameters and order (default 0)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--device", choices=("auto", "cuda", "host"), default="auto")
    parser.add_argument("--prune", type=fraction, metavar="F", help="prune this part of the weights, as 0.97")
    parser.add_argument(
        "--prune-scope", choices=SCOPES, help="F of every layer, or of all together (default layer)"
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="CHECKPOINT",
        help="parameters and masks to start from, and to prune (default: the initial ones of --seed)",
    )


def make_network(
    arguments: argparse.Namespace, input_shape: Sequence[int] | None = None, classes: int | None = None
) -> Sequential:
    """The network of `add_model`'s arguments; `input_shape` and `classes` serve where none were given.

    It has the parameters and masks of the checkpoint that --from names, and is pruned as --prune says.
    """
    if arguments.prune is None and arguments.prune_scope is not None:
        raise BppsaError("--prune-scope says how to prune: give --prune F with it")
    wanted = arguments.input_shape or input_shape
    network = build_model(
        arguments.model,
        input_shape=None if wanted is None else tuple(wanted),
        classes=arguments.classes or classes,
        seed=arguments.seed,
        dtype=arguments.dtype,
        device=arguments.device,
    )
    if arguments.start is not None:
        checkpoint = load_checkpoint(arguments.start)
        take_masks(network, checkpoint)
        network.load_state_dict(checkpoint.parameters)
    if arguments.prune is not None:
        prune(network, arguments.prune, arguments.prune_scope or "layer")
    return network


def take_masks(network: Sequential, checkpoint: Checkpoint) -> None:
    """Give the network the checkpoint's masks. Raises CheckpointError for one of another network or dtype."""
    with suppress(ShapeError):  # told below, with all that differs
        network.set_masks(checkpoint.masks)
    checkpoint.check(network.describe(), network.dtype.name)
