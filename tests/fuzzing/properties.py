"""Run every property test again and again, each round on examples of a new seed, until the time is over."""

import argparse
import re
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


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


def main() -> int:
    """0 where no round failed, 1 after the first that did, with its examples and the command for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, help="rounds begin until this time is over")
    parser.add_argument("-n", "--workers", type=int, default=2)
    args = parser.parse_args()
    start, rounds, total, failure = time.monotonic(), 0, 0, ""
    while not failure and time.monotonic() - start < args.seconds:
        seed = secrets.randbelow(2**32)
        print(f"round {rounds + 1}, seed {seed}: ", end="", flush=True)
        tests, examples, failure = play(seed, args.workers)
        print(f"{tests} tests, {examples} examples, {'FAILED' if failure else 'passed'}", flush=True)
        rounds, total = rounds + 1, total + examples
    if failure:
        failed = dict.fromkeys(re.findall(r"^FAILED (.+?)(?: - .*)?$", failure, re.MULTILINE))
        print(failure, "Add what was found as @example to its test. To repeat it:", sep="\n")
        for test in failed:
            options = f"--hypothesis-profile=fuzz --hypothesis-seed={seed}"
            print(f"  {sys.executable} -m pytest {shlex.quote(test)} {options}")
    print(f"rounds: {rounds}, examples: {total}, seconds: {time.monotonic() - start:.0f}")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
