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
from bppsa_cupy.tools.machine import available_cores, provenance
from bppsa_cupy.tools.paper import SETS
from bppsa_cupy.tools.pictures.svg import check_drawing
from bppsa_cupy.tools.reproduction.cells import Cell, Kept, Store
from bppsa_cupy.tools.reproduction.page import Facts, write_page
from bppsa_cupy.tools.reproduction.parts import make_parts
from bppsa_cupy.tools.reproduction.profiles import FULL, QUICK, Given, Profile, make_cells
from bppsa_cupy.tools.reproduction.torch_training import import_torch

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

    Raises BppsaError where data cannot be read or an extra is missing, before the runs, and at the end where
    runs failed.
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
    if report.left and not arguments.page_only:
        import_torch()  # before the first run, and not where a later one needs it
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

    @property
    def left(self) -> list[Cell]:
        """The runs that are not there yet."""
        return [cell for cell in self.cells.values() if cell.name not in self.kept]

    def make_runs(self) -> None:
        """Make the runs that are left, one after another, and print a line of each; one that fails does not
        stop the others."""
        left = self.left
        written = time.monotonic()
        with tqdm(
            total=sum(cell.weight for cell in left), bar_format=BAR, disable=None, file=sys.stderr
        ) as bar:
            for number, cell in enumerate(left, 1):
                which = f"{number + len(self.cells) - len(left)}/{len(self.cells)} {cell.name}"
                bar.set_description(which)
                started = time.perf_counter()
                try:
                    result = cell.measure(cell.settings)
                except (BppsaError, MemoryError) as error:
                    self.failures[cell.name] = complaint(error)[0]
                    bar.write(f"{which}: failed ({self.failures[cell.name]})")
                else:
                    seconds = time.perf_counter() - started
                    kept = Kept(cell.name, dict(cell.settings), seconds, dict(self.store.machine), result)
                    self.store.write(cell, kept)
                    self.kept[cell.name] = kept
                    bar.write(f"{which}: {seconds:.1f} s")
                sys.stdout.flush()
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
