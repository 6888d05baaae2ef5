"""What bppsa-jacobians runs: write, list and draw the transposed Jacobians of a network."""

from __future__ import annotations

import argparse
import json
import math
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
from bppsa_cupy.tools.models import make_network
from bppsa_cupy.tools.pictures.chain_pictures import picture_lyapunov, picture_norms, picture_spectrum
from bppsa_cupy.tools.pictures.jacobian_picture import plot_records
from bppsa_cupy.tools.pictures.picture_file import check_picture
from bppsa_cupy.tools.pictures.report import report
from bppsa_cupy.tools.pictures.svg import check_drawing
from bppsa_cupy.training.loop import check_dataset
from bppsa_cupy.training.losses import cross_entropy

#: Most panels of one picture.
PANELS = 32
#: Pictures over time, by the command's name.
OVER_TIME = {"spectrum": picture_spectrum, "norms": picture_norms, "lyapunov": picture_lyapunov}


def run_dump(arguments: argparse.Namespace) -> None:
    """One forward and one backward pass on the first batch, and its records into a file."""
    check_writable(arguments.output, error=JacobianFileError)
    dataset = load(arguments.data)
    network = make_network(arguments, dataset)
    print(f"device {network.device.name}, {network.dtype}", flush=True)
    check_dataset(network, dataset)
    batch = next(batches(dataset.train, arguments.batch_size, seed=arguments.seed, dtype=network.dtype))
    if arguments.sample is not None and not 0 <= arguments.sample < len(batch.labels):
        raise BppsaError(
            f"the batch has no sample {arguments.sample}: pass --sample 0 to {len(batch.labels) - 1}"
        )
    scores = network.forward(batch.inputs, lengths=batch.lengths)
    loss, gradient = cross_entropy(scores, batch.labels, lengths=batch.label_lengths)
    network.backward(gradient, method="bp")
    records = network.transposed_jacobians()
    if arguments.sample is not None:
        records = records.sample(arguments.sample)
    save_jacobians(arguments.output, records, **cli.taken(arguments, "compress"))
    size = arguments.output.stat().st_size
    print(
        f"{arguments.output}: {counted(len(records), 'Jacobian')}, {in_bytes(size)}, loss {float(loss):.4f}"
    )


def run_show(arguments: argparse.Namespace) -> None:
    """A row for each record of a file."""
    rows = [describe(record) for record in load_jacobians(arguments.file, sealed=not arguments.unsealed)]
    if arguments.json:
        print(json.dumps({"file": str(arguments.file), "records": rows}))
    else:
        print(table(rows))


def describe(record: JacobianRecord) -> dict[str, Any]:
    """The facts that `show` prints about a record.

    The guaranteed sparsity is the fraction of elements outside the pattern (paper, table 1). The actual
    sparsity is the fraction of zeros over all samples, stored zeros included. The bytes include the indices.
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
    loaded = load_jacobians(arguments.file, sealed=not arguments.unsealed)
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
        raise JacobianFileError(f"{output} is not the name of a page: give a name that ends in .html")
    check_drawing()
    check_writable(output, error=JacobianFileError)
    records = load_jacobians(arguments.file, sealed=not arguments.unsealed)
    size = report(records, title=arguments.file.name).save(output)
    print(f"{output}: {in_bytes(size)}")


def run_over_time(arguments: argparse.Namespace) -> None:
    """A picture of the steps that were chosen."""
    check_picture(arguments.output)
    records = load_jacobians(arguments.file, sealed=not arguments.unsealed)
    if not records.chains():
        raise JacobianFileError(f"{arguments.file} has no recurrent layer: it has {records!r}")
    records = JacobianRecords(record for chain in records.chains() for record in chain)
    steps = None if arguments.steps is None else slice(*arguments.steps)
    records = records.where(steps=steps, **cli.taken(arguments, "layer", "inner", "direction"))
    if arguments.sample is not None:
        records = records.sample(arguments.sample)
    OVER_TIME[arguments.name](records.chains(), arguments.output)
