"""Kills, Ctrl-C and SIGTERM at random moments: nothing is half written, the next run gives the same bits."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np

from faulting.commands import Command
from faulting.running import RAISED, Peace, Run, fresh, is_whole, left_hidden, listed

#: What an older run left at the outputs.
OLD = b"an older file"


def stop(
    command: Command, peace: Peace, furnished: Path, folder: Path, number: int, rng: np.random.Generator
) -> str:
    """Send a signal at a random moment, check what is there, run again, and check that; what happened, as
    "stopped" or "done before", or "wrong: …"."""
    fresh(furnished, folder)
    old = bool(rng.integers(2)) and not command.resume
    for name in peace.outputs if old else ():
        (folder / name).write_bytes(OLD)
    run = Run(command, folder, command.line)
    time.sleep(rng.uniform(0, 1.05 * peace.seconds))
    run.send(number)
    ended = run.wait()
    fault = _fault(command, peace, folder, number, ended.code, ended.said, old)
    if fault:
        return f"wrong: {fault}"
    again = Run(command, folder, command.again(folder)).wait()
    if again.code != 0:
        return f"wrong: the next run ended with {again.code}: {again.said}"
    for name, content in peace.outputs.items():
        if (folder / name).read_bytes() != content:
            return f"wrong: {name} of the next run has other bits"
    if listed(folder) != peace.names:
        return f"wrong: left behind: {set(listed(folder)) ^ set(peace.names)}"
    return "done before" if ended.code == 0 else "stopped"


def _fault(
    command: Command, peace: Peace, folder: Path, number: int, code: int | None, said: str, old: bool
) -> str:
    """What is wrong with a run that got a signal, "" for nothing."""
    early = number == signal.SIGINT and code == RAISED and "one_interrupt" not in said
    known = {signal.SIGKILL: (0, -9), signal.SIGTERM: (0, -15), signal.SIGINT: (0, 130, -2)}[
        signal.Signals(number)
    ]
    if code not in known and not early:
        return f"it ended with {code}: {said}"
    if code == 130 and said.splitlines()[-1:] != ["error: interrupted; nothing half written is left"]:
        return f"it said {said!r}"
    if number == signal.SIGINT:
        if hidden := left_hidden(peace, folder):
            return f"it left {hidden}"
    return half_written(command, peace, folder, old)


def half_written(command: Command, peace: Peace, folder: Path, old: bool) -> str:
    """What is wrong with the outputs of a run that did not end well, "" for nothing.

    old  whether they may be what an older run left
    """
    for name in command.outputs:
        path = folder / name
        if not path.exists() or (old and path.read_bytes() == OLD):
            continue
        if not is_whole(command, name, path.read_bytes(), peace):
            return f"{name} is half written"
    return ""
