"""The program of `make mutants`: the faults it makes, how they reach what runs, and equivalent ones."""

import ast
import ctypes
import mmap
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fuzzing.children import play_alone
from mutating import in_kernels, in_python, kernels
from mutating.fenced import FencedBuffer
from mutating.in_functions import Functions
from mutating.likely import Likely
from mutating.mutant import ROOT, in_order
from mutating.playing import _compiled_last
from mutating.recording import imported_by, lines_run
from mutating.subjects import PYTHON
from mutating.told import SEEN, Outcomes, read_equivalent

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import bit_sets

pytestmark = pytest.mark.long

CHECKS = ROOT / "tools" / "instruments" / "checks"
PATTERNS = "bppsa_cupy/csr.py"


def fault_of(path, change, maker=in_python):
    """The first fault of a file whose change begins so."""
    return next(mutant for mutant in maker.faults_of(path) if mutant.change.startswith(change))


@pytest.mark.parametrize("subject", PYTHON)
def test_a_subject_has_files_tests_and_faults_with_keys_of_their_own(subject):
    sources = PYTHON[subject].sources()
    assert sources and PYTHON[subject].test_files()
    keys = [mutant.key for path in sources for mutant in in_python.faults_of(path)]
    assert len(keys) > 100 and len(set(keys)) == len(keys)


@pytest.mark.instrument
def test_equivalent_faults_exist_and_have_reasons():
    listed = read_equivalent()
    paths = {key.partition(" | ")[0] for key in listed}
    made = {
        mutant.key
        for path in paths
        for mutant in (in_python if path.endswith(".py") else in_kernels).faults_of(path)
    }
    assert not set(listed) - made, "no such fault, now: leave it out"
    assert all(len(reason) > 20 for reason in listed.values())


def test_a_list_without_a_reason_is_refused(tmp_path):
    file = tmp_path / "equivalent.txt"
    file.write_text("# words\na | b | c → d\ne | f | g → h\n    they are\n    the same\n")
    assert read_equivalent(file) == dict.fromkeys(["a | b | c → d", "e | f | g → h"], "they are the same")
    file.write_text("a | b | c → d\n")
    with pytest.raises(AssertionError, match=r"no reason behind a \| b"):
        read_equivalent(file)


def test_a_fault_of_python_changes_one_place_and_no_line():
    path = "bppsa_cupy/training/losses.py"
    before = ast.parse(Path(ROOT, path).read_text(encoding="utf-8"))
    lines = [node.lineno for node in ast.walk(before) if isinstance(node, ast.FunctionDef)]
    texts = {ast.unparse(before)}
    for mutant in in_python.faults_of(path):
        tree = in_python.mutated(mutant)
        assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] == lines
        assert ast.unparse(tree) not in texts, mutant.key
        texts.add(ast.unparse(tree))


def test_a_fault_of_a_kernel_changes_one_line():
    path = "raw_kernels/newton_errors.cu"
    before = Path(ROOT, path).read_text(encoding="utf-8").split("\n")
    found = in_kernels.faults_of(path)
    for mutant in found:
        after = in_kernels.mutated(mutant).split("\n")
        assert [k + 1 for k, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]] == [
            mutant.line
        ]
    changes = {mutant.change for mutant in found}
    assert {"__syncthreads(); → ;", "k < chunks; → <=", "states * batch; → +"} <= changes
    assert not any("__restrict__" in mutant.text or mutant.text.startswith("#") for mutant in found)


def played(mutant, look):
    """What `look` gives in a forked process with a fault."""
    functions = Functions({mutant.path})

    def play(_):
        return ("put" if functions.put(mutant) else "none"), repr(look())

    return play_alone(play, 0, 60.0)


def test_live_functions_take_a_fault():
    mutant = fault_of(PATTERNS, "self.nnz == 0 → self.nnz != 0")
    one = played(mutant, lambda: Pattern.dense(2, 3).is_selection)
    assert (one.outcome, one.detail) == ("put", "True")
    assert Pattern.dense(2, 3).is_selection is False


def test_compiled_functions_take_a_fault():
    def found():
        bits, full = np.zeros((1, 1), np.uint64), np.zeros(1, bool)
        bit_sets.set_bits(np.array([0, 2], np.int32), np.array([1, 3], np.int32), 0, 4, bits, full)
        return int(bits[0, 0]), bool(full[0])

    path = "bppsa_cupy/plan/bit_sets.py"
    mutant = fault_of(path, "np.uint64(1) << np.uint64(column & 63)")
    assert Functions({path}).compiled_at(mutant) == "set_bits"
    assert Functions({PATTERNS}).compiled_at(fault_of(PATTERNS, "0 → 1")) is None
    one = played(mutant, found)
    assert (one.outcome, one.detail) == ("put", repr((0, False)))
    assert found() == (0b1010, False)


def test_a_kernel_takes_a_fault_and_its_twin_sees_it(tmp_path):
    trials = kernels.Trials(tmp_path)
    for path, change in (("newton_mismatch.cu", "1 < chunks → <="), ("batched.cuh", "int)item - quotient")):
        mutant = fault_of(f"raw_kernels/{path}", change, in_kernels)
        assert trials.outcome(mutant)[0] in SEEN


def test_a_read_beyond_that_nothing_takes_is_seen(tmp_path):
    """The weights in registers are fetched ahead of their step, by the last of them for none."""
    fault = fault_of("raw_kernels/frames/cuda/stage.cuh", "(left > AHEAD) → >=", in_kernels)
    assert kernels.Trials(tmp_path).outcome(fault) == ("crashed", "SIGSEGV")


@pytest.mark.parametrize("size", [0, 1, 3, 4096, 5000])
def test_a_fenced_buffer_ends_where_no_memory_is(size):
    buffer = FencedBuffer(size, np.dtype(np.float32))
    buffer.array[...] = 1
    assert buffer.array.ctypes.data == buffer.address or not size
    assert buffer.address % 16 == 0 and buffer.guards_hold()
    end = buffer.address + -(-4 * size // 16) * 16

    def read(_):
        return "read", str(ctypes.c_byte.from_address(end).value)

    assert play_alone(read, 0, 10.0).detail == "SIGSEGV"
    if 4 * size % mmap.PAGESIZE:
        ctypes.c_byte.from_address(buffer.address - 1).value = 1
        assert not buffer.guards_hold()
    buffer.close()


def test_time_in_which_processes_are_stopped_does_not_count():
    """0.6 s are waited for 0.1 s of processor time."""
    program = (
        "import time; from fuzzing.children import play_alone; print('ready', flush=True)\n"
        "print(play_alone(lambda _: (str(time.sleep(0.3)), ''), 0, 0.1).outcome)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", program], cwd=CHECKS, stdout=subprocess.PIPE,
        encoding="utf-8", start_new_session=True,
    )  # fmt: skip
    assert started.stdout.readline() == "ready\n"
    time.sleep(0.05)
    os.killpg(started.pid, signal.SIGSTOP)
    time.sleep(0.8)
    os.killpg(started.pid, signal.SIGCONT)
    assert started.communicate(timeout=60)[0] == "None\n"


def test_tests_that_have_seen_faults_near_by_are_the_likeliest():
    first, second, *_, last = in_python.faults_of(PATTERNS)
    likely = Likely()
    likely.add(first, "of the first")
    likely.add(last, "of the last")
    likely.add(fault_of("bppsa_cupy/geometry.py", ""), "of another file")
    assert [name for name, _ in likely.weights(second).most_common()] == ["of the first", "of the last"]
    assert likely.weights(first)["of the first"] == 1


def test_faults_of_compiled_functions_come_last():
    path = "bppsa_cupy/plan/bit_sets.py"
    compiled, plain = fault_of(path, "np.uint64(1) << "), fault_of(PATTERNS, "")
    functions = Functions({path, PATTERNS})
    assert list(_compiled_last(functions, [compiled, plain])) == [plain, compiled]


def test_lines_that_run_are_seen():
    path = PATTERNS
    pattern = Pattern.dense(2, 2)
    seconds, lines = lines_run([path], lambda: pattern.is_dense)
    text = Path(ROOT, path).read_text(encoding="utf-8").splitlines()
    assert seconds < 1 and [text[line - 1].strip() for line in lines[path]][-1].startswith(
        "return self.nnz =="
    )


def test_a_test_hangs_on_the_files_of_tests_that_it_imports():
    tests = Path(__file__).parents[1]
    found = {path.name for path in imported_by(tests / "scan" / "test_scan_ranks.py")}
    assert {
        "test_scan_ranks.py",
        "conftest.py",
        "ranks_in_turn.py",
        "plan_cases.py",
        "symbolic_oracle.py",
    } <= found
    assert "kernel_cases.py" not in found


def test_the_order_follows_the_seed():
    faults = [mutant for path in PYTHON["patterns"].sources() for mutant in in_python.faults_of(path)]
    first, again, other = (in_order(faults, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert {mutant.key for mutant in first} == {mutant.key for mutant in other}
    assert len({mutant.path for mutant in first[:20]}) == 2


def test_outcomes_are_kept_and_survivors_tried_again(tmp_path, capsys):
    mutants = in_python.faults_of(PATTERNS)[:4]
    outcomes = Outcomes(tmp_path, "patterns", 7)
    for mutant, outcome in zip(mutants, ("killed", "survived", "timed out"), strict=False):
        outcomes.add(mutant, outcome, "by it")
    again = Outcomes(tmp_path, "patterns", 7)
    assert again.left(mutants) == [mutants[1], mutants[3]]
    assert not again.tell(mutants)
    assert "patterns, seed 7: 3 of 4 tried, 1 killed, 1 timed out" in capsys.readouterr().out
    again.add(mutants[1], "killed", "by a new test")
    assert again.tell(mutants) and Outcomes(tmp_path, "patterns", 7).left(mutants) == [mutants[3]]


def test_a_short_run_tells_what_it_tried(tmp_path):
    tests = Path(__file__).parents[1]
    program = [sys.executable, str(CHECKS / "mutants.py"), "1", "--only", "patterns", "--seed", "1"]
    program += ["--tests", str(tests / "laws" / "test_pattern.py"), "--out", str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, encoding="utf-8")
    tried = re.search(r"patterns, seed 1: (\d+) of \d+ tried, (\d+) killed, .* (\d+) survived", ended.stdout)
    assert tried and int(tried[1]) >= max(1, int(tried[2])), ended.stdout + ended.stderr
    assert ended.returncode == (1 if int(tried[3]) else 0)
    assert {file.name for file in tmp_path.iterdir()} == {"patterns-1.jsonl", "recorded-patterns.json"}
