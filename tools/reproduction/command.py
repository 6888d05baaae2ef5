"""`bppsa-reproduce all`: the runs that are not there yet, and the page of all that are."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm

from bppsa_cupy.data import load
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.complaint import complaint
from bppsa_cupy.system.files import check_writable, write_text
from bppsa_cupy.tools.benchmarks.machine import provenance
from bppsa_cupy.tools.benchmarks.workload import available_cores
from bppsa_cupy.tools.reproduction.cells import Cell, Kept, Store
from bppsa_cupy.tools.reproduction.page import Facts, write_page
from bppsa_cupy.tools.reproduction.paper import SETS
from bppsa_cupy.tools.reproduction.parts import make_parts
from bppsa_cupy.tools.reproduction.profiles import FULL, QUICK, Given, Profile, make_cells
from bppsa_cupy.tools.reproduction.svg import check_drawing

#: Seconds from one page to the next while runs are made.
PAGE_SECONDS = 60.0
BAR = "{l_bar}{bar}| {elapsed} taken, {remaining} left{postfix}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce all`."""
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="DIR", help="folder of report.html and the runs"
    )
    parser.add_argument("--quick", action="store_true", help="smaller runs: within 20 minutes on two cores")
    parser.add_argument(
        "--images",
        default="digits",
        metavar="FOLDER",
        help="of CIFAR-10 for figure 6 (default: scikit-learn's digits)",
    )
    parser.add_argument(
        "--audio", type=audio_file, action="append", default=[], metavar="S=FILE",
        help="features of bppsa-data audio for a set of figure 13, S, M or L (default: waves of its size)",
    )  # fmt: skip
    parser.add_argument(
        "--page-only", action="store_true", help="write the page of what is there, run nothing"
    )


def audio_file(text: str) -> tuple[str, Path]:
    """The argument type of a set's file: "S=features.h5"."""
    name, _, path = text.partition("=")
    if name not in SETS or not path:
        raise argparse.ArgumentTypeError(f"{text!r} names no set and file: give {', '.join(SETS)} as S=FILE")
    return name, Path(path)


def run(arguments: argparse.Namespace) -> None:
    """Make what is missing, and write the page now and then and at the end, after Ctrl-C too.

    Raises BppsaError where data cannot be read, before the runs, and at the end where runs failed.
    """
    check_drawing()
    device = get_device(arguments.device)
    given = Given(device.name, available_cores(), arguments.images, dict(arguments.audio))
    if not arguments.page_only:
        for source in (given.images, *dict(arguments.audio).values()):
            load(source)
    arguments.out.mkdir(parents=True, exist_ok=True)
    check_writable(arguments.out / "report.html")
    store = Store(arguments.out / "runs", provenance(device, given.threads))
    profile = QUICK if arguments.quick else FULL
    report = Report(profile, given, store, arguments.out / "report.html", arguments.command)
    try:
        if not arguments.page_only:
            report.make_runs()
    finally:
        report.write()
    print(report.told())
    if report.failures:
        name, why = next(iter(report.failures.items()))
        count = len(report.failures)
        raise BppsaError(f"{count} run{'s' * (count > 1)} failed, first {name}: {why}; the page says which")


class Report:
    """The runs of a profile, those that are finished, and their page."""

    def __init__(self, profile: Profile, given: Given, store: Store, path: Path, command: str) -> None:
        self.profile, self.store, self.path, self.command = profile, store, path, command
        self.cells: Mapping[str, Cell] = make_cells(profile, given)
        self.kept: dict[str, Kept] = {}
        self.failures: dict[str, str] = {}
        for name, cell in self.cells.items():
            kept = store.read(cell)
            if kept is not None:
                self.kept[name] = kept

    def make_runs(self) -> None:
        """Make the runs that are not kept, one after another; one that fails does not stop the others."""
        left = [cell for cell in self.cells.values() if cell.name not in self.kept]
        written = time.monotonic()
        with tqdm(
            total=sum(cell.weight for cell in left), bar_format=BAR, disable=None, file=sys.stderr
        ) as bar:
            for number, cell in enumerate(left, 1):
                bar.set_description(f"{number + len(self.cells) - len(left)}/{len(self.cells)} {cell.name}")
                started = time.perf_counter()
                try:
                    result = cell.measure(cell.settings)
                except (BppsaError, MemoryError) as error:
                    self.failures[cell.name] = complaint(error)[0]
                else:
                    seconds = time.perf_counter() - started
                    kept = Kept(cell.name, dict(cell.settings), seconds, dict(self.store.machine), result)
                    self.store.write(cell, kept)
                    self.kept[cell.name] = kept
                bar.update(cell.weight)
                if time.monotonic() - written > PAGE_SECONDS:
                    self.write()
                    written = time.monotonic()

    def write(self) -> None:
        """Write the page of what is finished."""
        facts = Facts(self.command, self.profile.name, self.store.machine, self.kept, self.failures)
        write_text(self.path, write_page(make_parts(self.profile), facts))

    def told(self) -> str:
        """What is there, in a line."""
        return f"{self.path}: {len(self.kept)} of {len(self.cells)} runs"
