"""Write, list and draw the transposed Jacobians of a network."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import batches, load
from bppsa_cupy.errors import BppsaError, JacobianFileError
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.system.units import counted, in_bytes
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.lines import aligned
from bppsa_cupy.tools.pictures.chain_pictures import plot_lyapunov, plot_norms, plot_spectrum
from bppsa_cupy.tools.pictures.jacobian_picture import SHOWS, SMALL, Range, plot_records
from bppsa_cupy.tools.pictures.picture_file import check_picture
from bppsa_cupy.tools.pictures.report import report
from bppsa_cupy.tools.pictures.svg import check_drawing
from bppsa_cupy.training.loop import check_dataset
from bppsa_cupy.training.losses import cross_entropy

#: Most panels of one picture.
PANELS = 32
#: Pictures over time: the command's name, what draws it, and of what.
OVER_TIME = {
    "spectrum": (plot_spectrum, "the singular values of every step"),
    "norms": (plot_norms, "how gradients grow or vanish on their way back"),
    "lyapunov": (plot_lyapunov, "Lyapunov exponents"),
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = cli.command("bppsa-jacobians", __doc__)
    commands = result.add_subparsers(required=True, metavar="COMMAND")

    dump = commands.add_parser("dump", help="write the Jacobians of one forward and backward pass")
    cli.add_model(dump)
    cli.add_mode(dump)
    dump.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="HDF5 file to write")
    dump.add_argument(
        "--data", required=True, help="'digits', or a path: CIFAR-10's binary layout, IDX or .npz"
    )
    dump.add_argument("--checkpoint", dest="start", type=Path, metavar="FILE", help="the same as --from")
    dump.add_argument("--batch-size", type=cli.positive, default=16, metavar="B", help="default 16")
    dump.add_argument("--sample", type=int, metavar="K", help="write the matrices of this sample alone")
    dump.add_argument(
        "--anndata", action="store_true", help="each sample of a batch also as a group that AnnData reads"
    )
    dump.add_argument("--compress", action="store_true", help="shuffle and gzip, for a smaller file")
    dump.set_defaults(run=run_dump)

    show = commands.add_parser("show", help="list the Jacobians of a file")
    show.add_argument("file", type=Path, metavar="FILE")
    show.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    add_unsealed(show)
    show.set_defaults(run=run_show)

    plot = commands.add_parser("plot", help="draw zeros (paper, figure 5), or small ones by value")
    plot.add_argument("file", type=Path, metavar="FILE")
    plot.add_argument("-o", "--output", type=Path, required=True, metavar="PNG")
    plot.add_argument("--layer", type=int, action="append", metavar="K", help="these layers alone")
    plot.add_argument("--step", type=int, default=0, help="time step of recurrent layers (default 0)")
    plot.add_argument("--sample", type=int, default=0, metavar="K", help="of a batch (default 0)")
    plot.add_argument(
        "--show", choices=SHOWS, default="auto",
        help=f"values, or where the zeros are (default: values up to {SMALL} rows and columns)",
    )  # fmt: skip
    plot.add_argument("--rows", type=window, default=(None, None), metavar="R0:R1", help="crop")
    plot.add_argument("--columns", type=window, default=(None, None), metavar="C0:C1", help="crop")
    add_unsealed(plot)
    plot.set_defaults(run=run_plot)

    page = commands.add_parser("report", help="all that a file tells, as one page of HTML")
    page.add_argument("file", type=Path, metavar="FILE")
    page.add_argument("-o", "--output", type=Path, metavar="HTML", help="default: FILE with the suffix .html")
    add_unsealed(page)
    page.set_defaults(run=run_report)

    for name, (draw, summary) in OVER_TIME.items():
        over_time = commands.add_parser(name, help=f"draw {summary}, of recurrent layers over time")
        over_time.add_argument("file", type=Path, metavar="FILE")
        over_time.add_argument("-o", "--output", type=Path, required=True, metavar="PNG")
        over_time.add_argument("--layer", type=int, metavar="K", help="this layer alone")
        over_time.add_argument("--inner", type=int, metavar="N", help="this inner layer alone, from 0")
        over_time.add_argument("--direction", choices=("forward", "backward"), help="this one alone")
        over_time.add_argument("--steps", type=window, metavar="T0:T1", help="these time steps alone")
        over_time.add_argument("--sample", type=int, metavar="K", help="this sample alone (default: all)")
        add_unsealed(over_time)
        over_time.set_defaults(run=run_over_time, draw=draw)
    return result


def add_unsealed(parser: argparse.ArgumentParser) -> None:
    """--unsealed."""
    parser.add_argument(
        "--unsealed", action="store_true", help="the file has no seal: another program wrote or rewrote it"
    )


def window(text: str) -> Range:
    """The argument type of a half-open range: "10:20", ":20", "10:"."""
    first, colon, end = text.partition(":")
    try:
        if colon:
            return (int(first) if first else None, int(end) if end else None)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no range: give it as 10:20, :20 or 10:")


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-jacobians; returns the exit code."""
    arguments = parser().parse_args(argv)
    return cli.run(arguments.run, arguments)


def run_dump(arguments: argparse.Namespace) -> None:
    """One forward and one backward pass on the first batch, and its records into a file."""
    check_writable(arguments.output, error=JacobianFileError)
    dataset = load(arguments.data)
    network = cli.make_network(arguments, dataset)
    print(f"device {network.device.name}, {network.dtype}", flush=True)
    check_dataset(network, dataset)
    batch = next(batches(dataset.train, arguments.batch_size, seed=arguments.seed, dtype=network.dtype))
    if arguments.sample is not None and not 0 <= arguments.sample < len(batch.labels):
        raise BppsaError(
            f"--sample {arguments.sample} was asked for: the batch has samples 0 to {len(batch.labels) - 1}"
        )
    scores = network.forward(batch.inputs, lengths=batch.lengths)
    loss, gradient = cross_entropy(scores, batch.labels, lengths=batch.label_lengths)
    network.backward(gradient, method="bp")
    records = network.transposed_jacobians()
    if arguments.sample is not None:
        records = records.sample(arguments.sample)
    save_jacobians(arguments.output, records, **cli.taken(arguments, "compress", "anndata"))
    size = arguments.output.stat().st_size
    print(
        f"{arguments.output}: {counted(len(records), 'Jacobian')}, {in_bytes(size)}, loss {float(loss):.4f}"
    )


def run_show(arguments: argparse.Namespace) -> None:
    """A row for each record of a file."""
    rows = [describe(record) for record in load_file(arguments)]
    if arguments.json:
        print(json.dumps({"file": str(arguments.file), "records": rows}))
    else:
        print(table(rows))


def load_file(arguments: argparse.Namespace) -> JacobianRecords:
    """The records of the file that was named, whoever wrote it."""
    return load_jacobians(arguments.file, sealed=not arguments.unsealed)


def describe(record: JacobianRecord) -> dict[str, Any]:
    """What `show` tells of a record.

    guaranteed_sparsity  fraction of elements outside the pattern (paper, table 1)
    actual_sparsity      fraction of elements that are zero, stored zeros included, over all samples
    bytes                of values and indices
    """
    data, pattern = np.asarray(record.data), record.pattern
    elements = math.prod(pattern.shape) * (1 if data.ndim == 1 else data.shape[1])
    return {
        "layer": record.layer,
        "path": record.path,
        "name": record.name,
        "step": record.step,
        "direction": record.direction,
        "shape": list(pattern.shape),
        "dtype": data.dtype.name,
        "batch": record.batch,
        "sample": record.sample,
        "nnz": pattern.nnz,
        "guaranteed_sparsity": pattern.sparsity,
        "actual_sparsity": 1 - np.count_nonzero(data) / elements if elements else 0.0,
        "bytes": data.nbytes + pattern.indices.nbytes + pattern.indptr.nbytes,
        "gradient_norm": record.gradient_norm,
        "geometry": record.geometry,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows of `show` as aligned text; a batch of "all" is one set of values for every sample."""
    lines = [("layer", "shape", "batch", "nnz", "guaranteed", "actual", "bytes", "gradient norm")]
    stepped = {(row["layer"], row["path"], row["name"]) for row in rows if row["step"]}
    for row in rows:
        place = f"{row['layer']}.{row['path']}" if row["path"] else str(row["layer"])
        of_many = (row["layer"], row["path"], row["name"]) in stepped
        label = f"{place} {row['name']}" + (f" step {row['step']}" if of_many else "")
        label += "" if row["direction"] == "forward" else f" {row['direction']}"
        norm, sample = row["gradient_norm"], row["sample"]
        batch = "all" if row["batch"] is None else str(row["batch"])
        lines.append(
            (
                label,
                "×".join(map(str, row["shape"])),
                batch if sample is None else f"no. {sample}",
                f"{row['nnz']:,}",
                f"{row['guaranteed_sparsity']:.5f}",
                f"{row['actual_sparsity']:.5f}",
                in_bytes(row["bytes"]),
                "-" if norm is None else f"{norm:.4e}",
            )
        )
    return "\n".join(aligned(lines, "<" + ">" * (len(lines[0]) - 1)))


def run_plot(arguments: argparse.Namespace) -> None:
    """A picture of the records that were chosen."""
    check_picture(arguments.output)
    loaded = load_file(arguments)
    records = [record for record in loaded if record.step == arguments.step]
    if arguments.layer is not None:
        known = sorted({record.layer for record in records})
        missing = [layer for layer in arguments.layer if layer not in known]
        if missing:
            raise JacobianFileError(
                f"{arguments.file} has no layer {missing[0]} at step {arguments.step}: it has {known}"
            )
        records = [record for record in records if record.layer in arguments.layer]
    if not 1 <= len(records) <= PANELS:
        raise JacobianFileError(
            f"{arguments.file} has {len(records)} Jacobians at step {arguments.step}: a picture takes 1 to "
            f"{PANELS}, choose some with --layer or --step"
        )
    plot_records(records, arguments.output, **cli.taken(arguments, "rows", "columns", "sample", "show"))


def run_report(arguments: argparse.Namespace) -> None:
    """A page of the whole file."""
    output = arguments.output or arguments.file.with_suffix(".html")
    if output.suffix.lower() not in (".html", ".htm"):
        raise JacobianFileError(f"{output} names no page: give a name that ends in .html")
    check_drawing()
    check_writable(output, error=JacobianFileError)
    size = report(load_file(arguments), title=arguments.file.name).save(output)
    print(f"{output}: {in_bytes(size)}")


def run_over_time(arguments: argparse.Namespace) -> None:
    """A picture of the steps that were chosen."""
    check_picture(arguments.output)
    records = load_file(arguments)
    if not records.chains():
        raise JacobianFileError(f"{arguments.file} has no recurrent layer: it has {records!r}")
    records = JacobianRecords(record for chain in records.chains() for record in chain)
    steps = None if arguments.steps is None else slice(*arguments.steps)
    records = records.where(steps=steps, **cli.taken(arguments, "layer", "inner", "direction"))
    if arguments.sample is not None:
        records = records.sample(arguments.sample)
    arguments.draw(records.chains(), arguments.output)


if __name__ == "__main__":
    sys.exit(main())
