"""JSON lines, which the programs of `make gpu` print."""

from __future__ import annotations

import json
import sys
from typing import Any


def tell(**line: Any) -> None:
    """Print one JSON object on a line, now: what was found stays when the process is killed."""
    json.dump(line, sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()
