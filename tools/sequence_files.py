"""What bppsa-data runs: make and describe data sets of sequences."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data.dataset import Split
from bppsa_cupy.data.sequences import CLASSES, Sequences, make_bitstreams, read_sequences, write_sequences
from bppsa_cupy.errors import DataError
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.system.units import counted
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.audio import SETS, make_audio
from bppsa_cupy.tools.lines import fact


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
    options = cli.specified(arguments, "n_mfcc", "n_fft", "hop_length", "n_mels")
    sequences = make_audio(
        arguments.source,
        arguments.output,
        replace(SETS[arguments.set], **options),
        progress=sys.stderr.isatty(),
        **cli.taken(arguments, "test_fraction", "seed"),
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


def _splits(sequences: Sequences) -> list[tuple[str, Split]]:
    splits = [("train", sequences.train)]
    return splits if sequences.test is None else [*splits, ("test", sequences.test)]


def _describe(raw: Split, classes: int) -> dict[str, Any]:
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
