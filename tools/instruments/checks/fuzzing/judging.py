"""What a call that was given something odd may do: refuse it by a named error of ours, or take it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bppsa_cupy.errors import BppsaError


def judge(call: Callable[[], Any], names: str) -> tuple[str, str]:
    """("refused", message), ("accepted", "") or ("wrong", why); an error must say `names`."""
    try:
        call()
    except BppsaError as error:
        text = str(error)
        if names not in text:
            return "wrong", f"the error does not name {names!r}: {_place(error)}"
        return "refused", text
    except Exception as error:
        return "wrong", _place(error)
    return "accepted", ""


#: Folders of checks.
CHECKS = re.compile("/tests/|/instruments/")


def _place(error: BaseException) -> str:
    """The error and where it was raised, the last place of ours first."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "bppsa" in frame.filename and not CHECKS.search(frame.filename)]
    at = (ours or frames)[-1]
    return f"{type(error).__name__}: {str(error)[:300]} ({Path(at.filename).name}:{at.lineno}, {at.line})"
