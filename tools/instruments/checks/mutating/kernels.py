"""Faults of CUDA C++ texts, each compiled for the emulator in a forked process and compared with its twin.

A text is tried by the cases of the kernels that it is part of, in float64 and in float32, and by the probes
of a header; what the twins make of the cases is worked out once. A fault that they do not see is looked at
for races. An index beyond an array of known size ends the process.
"""

from __future__ import annotations

import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from emulator import build, device
from emulator.build import EmulationError
from fuzzing.children import play_alone
from kernel_cases import CASES, arguments
from kernel_cases_races import cases_to_race
from kernel_comparison import assert_same, by_text, by_twin
from kernel_probes import PROBES

from bppsa_cupy.raw_kernels import KERNELS, kernel
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames import kernels as frames
from bppsa_cupy.raw_kernels.frames.kernels import VERBS
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant
from bppsa_cupy.raw_kernels.linear import kernels as linear
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS
from mutating.fenced import FencedBuffer
from mutating.in_kernels import FOLDER, mutated
from mutating.likely import Likely
from mutating.mutant import ROOT, Mutant
from mutating.told import Outcomes

#: Kernels that a text is part of and that are tried at most; the processor seconds of one case, and of all.
TOGETHER, CASE, SECONDS = 9, 20.0, 900.0
#: From so few walks on a block takes several, where memory holds the weights: as many as cases have.
MANY = 5
#: An index beyond an array of known size is no instruction that there is.
BOUNDS = ("-fsanitize=bounds", "-fsanitize-undefined-trap-on-error")
#: Kernels whose twins are run before a fault is played, once for all faults.
READY = 2
#: The cells whose twins are compiled for both dtypes come first; one that has unit parameters is tried in
#: float64 as well.
CELLS, WITH_UNIT = ("rnn_tanh", "lstm", "gru"), "peephole_lstm"
#: What kernels of linear cells compute.
LINEAR_VERBS = ("terms", "by_inputs", "output", "by_state")
INCLUDED = re.compile(r'^#include "([\w./]+)"$', re.MULTILINE)


class Trials:
    """Tries faults; what it compiles lies in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._expected: dict[tuple[str, str], list[Any]] = {}
        self._likely = Likely()
        build.PLAIN_FLAGS = (*build.PLAIN_FLAGS, *BOUNDS)
        for flags in (build.PLAIN_FLAGS, build.RACE_FLAGS):
            made, own = build._headers_folder(build.FLAGS + flags), self._folder_of(flags)
            own.mkdir()
            for file in (*made.glob("*.hpp"), *made.glob("*.gch"), *made.glob("*.o")):
                (own / file.name).symlink_to(file)

    def _folder_of(self, flags: tuple[str, ...]) -> Path:
        """Of what is compiled with and without a look-out for races."""
        return self._folder / ("races" if "-DEMULATOR_RACES" in flags else "plain")

    def outcome(self, mutant: Mutant) -> tuple[str, str]:
        """What becomes of a fault, and which case tells."""
        names = list(kernels_with(mutant.path))
        tried = [(name, real) for real in ("float64", "float32") for name in names[:TOGETHER]]
        tried += [(name, "float64") for name in names[TOGETHER:] if name.startswith(WITH_UNIT)]
        weights = self._likely.weights(mutant)
        tried.sort(key=lambda one: -weights[_told(*one)])
        for one in tried[:READY]:
            self._expected_of(one)

        def play(_: int) -> tuple[str, str]:
            build._headers_folder = self._folder_of
            device.load.cache_clear()
            device.Buffer = FencedBuffer
            frames.MANY = MANY
            return _try(mutant, tried, self._expected_of)

        played = play_alone(play, 0, SECONDS)
        if played.outcome == "endless" or played.detail == signal.SIGPROF.name:
            return "timed out", played.detail
        return {"died": "crashed"}.get(played.outcome, played.outcome), played.detail

    def seen(self, mutant: Mutant, detail: str) -> None:
        """A fault was killed, as `outcome` has told: such cases are tried first for those near by."""
        self._likely.add(mutant, detail.partition(":")[0])

    def _expected_of(self, one: tuple[str, str]) -> list[Any]:
        """What a kernel's twin makes of its cases."""
        if one not in self._expected:
            self._expected[one] = list(_by_twin(*one))
        return self._expected[one]


def play_kernels(mutants: list[Mutant], outcomes: Outcomes, seconds: float) -> None:
    """Faults until the time is over."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bppsa-mutants-") as folder:
        trials = Trials(Path(folder))
        for mutant, detail in outcomes.seen_by(mutants):
            trials.seen(mutant, detail)
        for mutant in outcomes.left(mutants):
            if time.monotonic() - start > seconds:
                break
            outcome, detail = trials.outcome(mutant)
            outcomes.add(mutant, outcome, detail)
            if outcome == "killed":
                trials.seen(mutant, detail)


def kernels_with(path: str) -> Iterator[str]:
    """The kernels that a text is part of, the plainest first."""
    cells = [*CELLS, *sorted(set(FORMS) - set(CELLS))]
    places = {f"{cell}_{verb}": place for place, cell in enumerate(cells) for verb in VERBS}
    places |= {f"{cell}_{verb}": len(cells) for cell in LINEAR_FORMS for verb in LINEAR_VERBS}
    for name in sorted(KERNELS, key=lambda name: places.get(name, -1)):
        if path in _texts_of(name):
            yield name


def _cell_and_verb(name: str) -> tuple[str, str] | None:
    """The cell and the verb of a kernel that is a frame with a cell's text in it; None for any other."""
    kinds = ((FORMS, VERBS), (LINEAR_FORMS, LINEAR_VERBS))
    pairs = ((cell, verb) for forms, verbs in kinds for cell in forms for verb in verbs)
    return next((pair for pair in pairs if name == "_".join(pair)), None)


def _text_of_cell(cell: str) -> str:
    return f"{'cells' if cell in FORMS else 'linear_cells'}/{cell}.cuh"


def _texts_of(name: str) -> set[str]:
    """Paths of a kernel's text and of all it includes."""
    of_cell = _cell_and_verb(name)
    found: set[str] = set()
    frame = f"{name}.cu"
    if of_cell:
        frame = f"{'frames/cuda' if of_cell[0] in FORMS else 'linear'}/{of_cell[1]}.cu"
    waiting = [frame]
    while waiting:
        text = waiting.pop()
        if text == "cell.cuh" and of_cell:
            text = _text_of_cell(of_cell[0])
        if f"{FOLDER}/{text}" not in found:
            found.add(f"{FOLDER}/{text}")
            waiting += INCLUDED.findall(Path(ROOT, FOLDER, text).read_text(encoding="utf-8"))
    return found


def _by_twin(name: str, real: str) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """Each case's scalars, and its arguments before and after the twin's launch."""
    one, variant, rng = KERNELS[name], Variant(real), np.random.default_rng(20240229)
    for case in CASES[name](rng):
        given = arguments(one, variant, case, rng)
        yield case.scalars, given, by_twin(one, variant, given)


def _told(name: str, real: str) -> str:
    return f"{name} in {real}"


def _try(
    mutant: Mutant,
    tried: list[tuple[str, str]],
    expected: Callable[[tuple[str, str]], list[Any]],
) -> tuple[str, str]:
    """In a process of its own: the first case of these kernels in which a fault is seen."""
    changed = mutant.path.removeprefix(f"{FOLDER}/")
    text, read = mutated(mutant), kernel.read_source
    for holder in (kernel, frames, linear):
        holder.read_source = lambda name: text if name == changed else read(name)
    emulated = device.EmulatedDevice()
    for one in tried:
        name, told = one[0], _told(*one)
        faulty = _rebuilt(name)
        for turn, (scalars, given, wanted) in enumerate(expected(one)):
            signal.setitimer(signal.ITIMER_PROF, CASE)
            try:
                found = by_text(faulty, emulated, [_copy(value) for value in given], turn)
                assert_same(faulty, found, wanted, scalars)
            except EmulationError as error:
                if "does not compile" in str(error):
                    return "does not compile", name
                return "killed", f"{told}: {error}"[:200]
            except AssertionError:
                return "killed", f"{told}: {scalars}"
    for probe in PROBES.get(changed, ()):
        try:
            probe(emulated)
        except (AssertionError, EmulationError) as error:
            return "killed", f"a probe: {error}"[:200]
    for name in dict.fromkeys(name for name, _ in tried):
        signal.setitimer(signal.ITIMER_PROF, len(tried) * CASE)
        try:
            for values in cases_to_race(KERNELS[name]):
                device.RaceDevice((2,)).launch(_rebuilt(name), *values)
        except EmulationError as error:
            return "killed", f"{name}: {error}"[:200]
    return "survived", ", ".join(map(_told, *zip(*tried, strict=True)))


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _rebuilt(name: str) -> Kernel:
    """A kernel of the texts as `read_source` gives them now."""
    of_cell = _cell_and_verb(name)
    if not of_cell:
        return replace(KERNELS[name], text=kernel.read_source(f"{name}.cu"))
    cell, verb = of_cell
    cuda = kernel.read_source(_text_of_cell(cell))
    if cell in LINEAR_FORMS:
        return linear.kernel_of(replace(LINEAR_FORMS[cell], cuda=cuda), verb, KERNELS[name].twin)
    twins = {own: KERNELS[f"{cell}_{own}"].twin for own in VERBS if f"{cell}_{own}" in KERNELS}
    return frames.make_kernels(replace(FORMS[cell], cuda=cuda), twins)[verb]
