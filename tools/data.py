"""Make data sets of sequences: the paper's bitstreams, and features of audio clips."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data.audio import make_audio
from bppsa_cupy.data.bitstream import CLASSES, make_bitstreams
from bppsa_cupy.data.clips import LAYOUTS
from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.data.mfcc import SETS
from bppsa_cupy.data.sequences import Sequences, read_sequences, write_sequences
from bppsa_cupy.errors import DataError
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.system.units import counted
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.lines import fact


def parser() -> argparse.ArgumentParser:
    """The command line, one subcommand a kind of data."""
    result = cli.command("bppsa-data", __doc__)
    kinds = result.add_subparsers(dest="kind", required=True)
    _add_bitstream(kinds.add_parser("bitstream", help="the paper's bitstreams (equation 8)"))
    _add_audio(kinds.add_parser("audio", help="MFCC features of a folder or archive of WAV files"))
    show = kinds.add_parser("show", help="what a file of sequences holds")
    show.add_argument("file", type=Path)
    show.add_argument("--json", action="store_true", help="one JSON object")
    show.set_defaults(run=run_show)
    return result


def _add_bitstream(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--length", type=cli.positive, required=True, metavar="T", help="bits a sample")
    parser.add_argument("--samples", type=cli.positive, default=32000, metavar="N", help="(default 32000)")
    parser.add_argument("--test-samples", type=cli.positive, metavar="N", help="others, for the test")
    parser.add_argument("--seed", type=cli.not_negative, default=0, help="of classes and bits (default 0)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.h5")
    parser.set_defaults(run=run_bitstream)


def _add_audio(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="FOLDER", help="of WAV files, or a zip archive of one")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.h5")
    features = parser.add_argument_group("features")
    features.add_argument("--set", choices=sorted(SETS), default="M", help="of the paper (default M)")
    for name, help in (
        ("n-mfcc", "coefficients a channel; the first is dropped"),
        ("n-fft", "samples of a window"),
        ("hop-length", "samples from frame to frame"),
        ("n-mels", "bands of the mel spectrum (default 128)"),
    ):
        features.add_argument(f"--{name}", type=cli.positive, metavar="N", help=help)
    features.add_argument("--rate", type=cli.positive, metavar="HZ", help="resample to this rate")
    features.add_argument("--mono", action="store_true", help="average the channels")
    features.add_argument(
        "--normalize",
        choices=("sample", "train"),
        default="sample",
        help="each coefficient over the frames of its clip, as the paper does, or by constants of all "
        "frames of the training clips (default sample)",
    )
    split = parser.add_argument_group("classes and split")
    split.add_argument("--layout", choices=LAYOUTS, default="auto", help="of the files (default auto)")
    split.add_argument(
        "--pattern", metavar="REGEX", help="for names without .wav, with a group for the class: (?P<label>…)"
    )
    split.add_argument("--test", metavar="REGEX", help="names without .wav that match are for the test")
    split.add_argument(
        "--test-fraction",
        type=float,
        default=0.2,
        help="of each class's recordings, where names do not say (default 0.2)",
    )
    split.add_argument(
        "--seed", type=cli.not_negative, default=0, help="which recordings those are (default 0)"
    )
    parser.add_argument("--workers", type=cli.positive, help="threads (default one a processor)")
    parser.set_defaults(run=run_audio)


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-data; returns the exit code."""
    arguments = parser().parse_args(argv)
    return cli.run(arguments.run, arguments)


def run_bitstream(arguments: argparse.Namespace) -> None:
    """Make bitstreams and write them."""
    check_writable(arguments.output, error=DataError)
    options: dict[str, Any] = {"seed": arguments.seed, "progress": sys.stderr.isatty()}
    train = make_bitstreams(arguments.length, arguments.samples, **options)
    test = None
    if arguments.test_samples is not None:
        test = make_bitstreams(arguments.length, arguments.test_samples, split=1, **options)
    sequences = Sequences(
        f"bitstream{arguments.length}",
        train,
        test,
        tuple(str(c) for c in range(CLASSES)),
        origin={"equation": 8, "length": arguments.length, "seed": arguments.seed},
    )
    write_sequences(arguments.output, sequences, compress=True)
    _print(arguments.output, sequences)


def run_audio(arguments: argparse.Namespace) -> None:
    """Compute features of clips and write them."""
    given = cli.given(arguments, "n_mfcc", "n_fft", "hop_length", "n_mels", "rate")
    sequences = make_audio(
        arguments.source,
        arguments.output,
        replace(SETS[arguments.set], mono=arguments.mono, **given),
        normalization=arguments.normalize,
        progress=sys.stderr.isatty(),
        **cli.taken(arguments, "layout", "pattern", "test", "test_fraction", "seed", "workers"),
    )
    _print(arguments.output, sequences)


def run_show(arguments: argparse.Namespace) -> None:
    """What a file holds, as text or JSON."""
    sequences = read_sequences(arguments.file)
    if not arguments.json:
        _print(arguments.file, sequences)
        return
    print(
        json.dumps(
            {
                "file": str(arguments.file),
                "name": sequences.name,
                "class_names": sequences.class_names,
                "normalization": sequences.normalization,
                "origin": sequences.origin,
                **{name: _describe(raw, len(sequences.class_names)) for name, raw in _splits(sequences)},
            }
        )
    )


def _splits(sequences: Sequences) -> list[tuple[str, Raw]]:
    found = [("train", sequences.train)]
    return found if sequences.test is None else [*found, ("test", sequences.test)]


def _describe(raw: Raw, classes: int) -> dict[str, Any]:
    lengths = [raw.inputs.shape[1]] if raw.lengths is None else raw.lengths
    return {
        "inputs": list(raw.inputs.shape),
        "dtype": raw.inputs.dtype.name,
        "lengths": [int(np.min(lengths)), float(np.median(lengths)), int(np.max(lengths))],
        "samples_by_class": np.bincount(raw.labels, minlength=classes).tolist(),
    }


def _print(path: Path, sequences: Sequences) -> None:
    classes = counted(len(sequences.class_names), "class", "classes")
    print(f"{path}: {sequences.name}, {classes}, normalization {sequences.normalization}")
    print(fact("classes", ", ".join(sequences.class_names)))
    print(fact("made by", ", ".join(f"{name} {value}" for name, value in sequences.origin.items())))
    for name, raw in _splits(sequences):
        facts = _describe(raw, len(sequences.class_names))
        least, median, most = facts["lengths"]
        steps = counted(most, "step") if least == most else f"{least} to {most} steps, median {median:g}"
        samples, _, width = raw.inputs.shape
        features = f"{counted(width, 'feature')}, {raw.inputs.dtype}"
        print(fact(name, f"{counted(samples, 'sample')} of {steps}, {features}"))


if __name__ == "__main__":
    sys.exit(main())
