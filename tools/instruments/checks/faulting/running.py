"""A command in a forked process, which may be disturbed; what it leaves is compared with a run in peace."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bppsa_cupy.training import loop
from bppsa_cupy.training.checkpoint import Checkpoint, save_checkpoint
from faulting.commands import Command

#: Seconds in which every command ends, disturbed or not.
LONGEST = 120.0
#: The exit code of a process in which an exception passed through the command.
RAISED = 97


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, minus the signal's number after one, None where it did not end and
    was killed; what it wrote to stderr; and how long it took."""

    code: int | None
    said: str
    seconds: float


class Run:
    """A command that runs in `folder`; `before` is called in its process first."""

    def __init__(
        self, command: Command, folder: Path, line: Sequence[str], before: Callable[[], None] = lambda: None
    ) -> None:
        sys.stdout.flush()
        # A pipe: no limit on the length of files cuts off what a command says.
        self._said, said = os.pipe()
        self._start = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            _be(command, folder, line, before, said)
        os.close(said)
        os.set_blocking(self._said, False)

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, seconds: float = LONGEST) -> Ended:
        """Wait for the end."""
        code, said = None, b""
        while code is None:
            said += self._read()
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() - self._start > seconds:
                self.send(signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            else:
                time.sleep(0.002)
        said += self._read()
        os.close(self._said)
        return Ended(code, said.decode(errors="replace"), time.monotonic() - self._start)

    def _read(self) -> bytes:
        """What the command has written since the last call."""
        found = []
        try:
            while some := os.read(self._said, 1 << 16):
                found.append(some)
        except BlockingIOError:
            pass  # It may write more.
        return b"".join(found)


def _be(command: Command, folder: Path, line: Sequence[str], before: Callable[[], None], said: int) -> None:
    code = RAISED
    try:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(said, 2)
        sys.path.insert(0, str(folder))
        before()
        code = command.main(list(line))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else RAISED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


@dataclass(frozen=True)
class Peace:
    """What a command leaves that nobody disturbs: its files, the checkpoints of all epochs, all names in the
    folder, and its time."""

    outputs: dict[str, bytes]
    checkpoints: tuple[bytes, ...]
    names: tuple[str, ...]
    seconds: float


def in_peace(command: Command, furnished: Path, folder: Path) -> Peace:
    """Run a command undisturbed, twice: the second run, without compiling, is the one whose time is told."""
    with TemporaryDirectory() as kept:

        def keep_checkpoints() -> None:
            def save(path: Path, checkpoint: Checkpoint) -> None:
                save_checkpoint(path, checkpoint)
                shutil.copy(path, Path(kept, f"{checkpoint.step}.h5"))

            loop.save_checkpoint = save

        for before in (keep_checkpoints, lambda: None):
            fresh(furnished, folder)
            ended = Run(command, folder, command.line, before).wait(600)
            assert ended.code == 0, (command.name, ended)
        checkpoints = tuple(path.read_bytes() for path in Path(kept).iterdir())
    outputs = {name: (folder / name).read_bytes() for name in command.outputs}
    return Peace(outputs, checkpoints, listed(folder), ended.seconds)


def fresh(furnished: Path, folder: Path) -> Path:
    """`folder`, as `furnished` is."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(furnished, folder)
    return folder


def listed(folder: Path) -> tuple[str, ...]:
    """All that lies in a folder, hidden or not, but what Python compiled."""
    return tuple(sorted(name for name in os.listdir(folder) if name != "__pycache__"))


def left_hidden(peace: Peace, folder: Path) -> list[str]:
    """Hidden files that a run should have removed; a folder of finished parts is for the next run."""
    return [
        name
        for name in listed(folder)
        if name.startswith(".") and name not in peace.names and not name.endswith(".parts")
    ]


def is_whole(command: Command, name: str, content: bytes, peace: Peace) -> bool:
    """Whether a file is as in peace, or as it was at an epoch's end, or for one that grows line by line, a
    beginning of that."""
    whole = peace.outputs[name]
    if name == "c.h5":
        return content in peace.checkpoints
    return whole.startswith(content) if name.endswith(".jsonl") else content == whole
