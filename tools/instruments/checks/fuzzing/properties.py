"""Property tests on new examples, round by round, each with a seed of its own."""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[4]


def play(seed: int, workers: int) -> tuple[int, int, str]:
    """One round: how many tests ran on how many examples, and what pytest printed where one failed."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-m", "hypothesis and not gpu"),
        *("--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", "--hypothesis-show-statistics"),
    ]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    tests = sum(map(int, re.findall(r"(\d+) (?:passed|failed)", result.stdout.strip().rpartition("\n")[2])))
    examples = sum(map(int, re.findall(r"(\d+) (?:passing|failing)", result.stdout)))
    text = re.sub(
        r"^=+ Hypothesis Statistics =.*?(?=^=+ )", "", result.stdout, flags=re.MULTILINE | re.DOTALL
    )
    return tests, examples, text if result.returncode else ""


def play_rounds(seconds: float, workers: int) -> bool:
    """Rounds begin until the time is over or one fails; whether all passed. Each prints its seed; a failure
    prints its examples, and the command for each."""
    start, rounds, total, failure = time.monotonic(), 0, 0, ""
    while not failure and time.monotonic() - start < seconds:
        seed = secrets.randbelow(2**32)
        print(f"properties, round {rounds + 1}, seed {seed}: ", end="", flush=True)
        tests, examples, failure = play(seed, workers)
        print(f"{tests} tests, {examples} examples, {'FAILED' if failure else 'passed'}", flush=True)
        rounds, total = rounds + 1, total + examples
    if failure:
        failed = dict.fromkeys(re.findall(r"^FAILED (.+?)(?: - .*)?$", failure, re.MULTILINE))
        print(failure, "Add what was found as @example to its test. To repeat it:", sep="\n")
        for test in failed:
            options = f"--hypothesis-profile=fuzz --hypothesis-seed={seed}"
            print(f"  {sys.executable} -m pytest {shlex.quote(test)} {options}")
    print(f"properties: rounds: {rounds}, examples: {total}, seconds: {time.monotonic() - start:.0f}")
    return not failure
