"""Every command line: help, usage, exit codes, errors on one line, silence in a pipe."""

import argparse
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
from commands import SCRIPTS, command, error_line, folder, train  # noqa: F401  folder is a fixture

from bppsa_cupy.data import dataset
from bppsa_cupy.distributed.group import TRANSPORTS
from bppsa_cupy.layers.matrix_recurrent import MatrixRecurrent
from bppsa_cupy.layers.recurrent import OUTPUTS
from bppsa_cupy.models import MODELS
from bppsa_cupy.network.passes import METHODS
from bppsa_cupy.network.prune import SCOPES
from bppsa_cupy.pipeline import SCHEDULES as PIPELINES
from bppsa_cupy.plan import SCHEDULES
from bppsa_cupy.tools import audio, choices


def test_choices_are_those_of_the_library():
    library = {
        "MODELS": MODELS, "OUTPUTS": OUTPUTS, "FORWARD_METHODS": MatrixRecurrent.forward_methods,
        "METHODS": METHODS,
        "SCHEDULES": SCHEDULES, "PIPELINES": PIPELINES, "SCOPES": SCOPES, "TRANSPORTS": TRANSPORTS,
        "AUGMENTATIONS": dataset.AUGMENTATIONS, "SETS": sorted(audio.SETS),
    }  # fmt: skip
    assert {name: tuple(value) for name, value in library.items()} == {
        name: getattr(choices, name) for name in library
    }


def test_help_imports_nothing_that_compiles():
    program = """
import sys
from importlib import import_module
for script in sys.argv[1:]:
    module, _, name = script.partition(":")
    try:
        getattr(import_module(module), name)(["--help"])
    except SystemExit as end:
        assert end.code == 0, script
assert not {"numba", "cupy", "torch", "jax", "h5py", "matplotlib", "mpi4py"} & set(sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, *SCRIPTS.values()], capture_output=True, encoding="utf-8"
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("usage: ") == len(SCRIPTS)


def parsers(parser):
    """A parser and the parsers of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in action.choices.values():
                yield from parsers(subcommand)


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_argument_has_a_sentence_and_its_default_and_each_help_an_example(script):
    top = import_module(SCRIPTS[script].partition(":")[0]).parser()
    for parser in parsers(top):
        example = parser.epilog.removeprefix("Example:\n  ").split()
        assert example[0] == script and top.parse_args(example[1:])
        for action in parser._actions:
            if action.dest not in (argparse.SUPPRESS, "help", "version") and action.nargs != argparse.PARSER:
                text = parser._get_formatter()._expand_help(action)
                assert re.fullmatch(r"[A-Z].*\w.*\.", text), text
                assert action.required or "Default: " in text, text


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("arguments", [[], ["--no-such-option"]])
def test_wrong_usage_is_two_lines_and_ends_with_2(script, arguments, capsys):
    with pytest.raises(SystemExit) as end:
        command(script)(arguments)
    printed = capsys.readouterr()
    assert end.value.code == 2 and not printed.out
    assert printed.err.startswith(f"{script}: error: ") and printed.err.count("\n") == 2


WRONG = [
    "bppsa-train model.py:small --data data.npz --seed -1",
    "bppsa-plan build model.py:small -o p.h5 --memory-limit -5G",
    "bppsa-plan build model.py:small -o p.h5 --batch-size 99999999999999999999",
    "bppsa-plan build model.py:small -o p.h5 --levels many",
    "bppsa-plan build model.py:small -o p.h5 --partition 0,a",
    "bppsa-plan pipeline lenet5",
    "bppsa-plan pipeline lenet5 --ppv one",
    "bppsa-plan explain p.h5 --workers 0",
    "bppsa-jacobians plot j.h5 -o p.png --rows a:b",
]


@pytest.mark.parametrize("words", WRONG)
def test_values_out_of_range_are_wrong_usage(folder, words):
    script, *arguments = words.split()
    with pytest.raises(SystemExit) as end:
        command(script)(arguments)
    assert end.value.code == 2
    assert sorted(path.name for path in folder.iterdir()) == ["data.npz", "model.py"]


STATED = [
    ("bppsa-plan build no-such-model -o p.h5", "no-such-model"),
    ("bppsa-plan build model.py:small -o no-such-folder/p.h5", "no-such-folder/p.h5"),
    ("bppsa-plan show missing.h5", "missing.h5"),
    ("bppsa-jacobians dump lenet5 --data missing -o j.h5", "missing"),
    ("bppsa-train missing.py:net --data data.npz", "missing.py"),
    ("bppsa-train model.py:small --data data.npz --num-layers 2", "--num-layers"),
    ("bppsa-data audio . -o f.h5", "WAV"),
    ("bppsa-bench train --quick --device host --data missing", "missing"),
]


@pytest.mark.parametrize(("words", "named"), STATED)
def test_a_stated_error_is_one_line_and_ends_with_1(folder, capsys, words, named):
    script, *arguments = words.split()
    assert command(script)(arguments) == 1
    assert named in error_line(capsys)


def test_in_a_pipe_no_bar_and_no_traceback(folder):
    """The command as a process, as a shell runs it; an epoch is told when it ends."""
    words = "model.py:patient --data data.npz --device host --epochs 2 --batch-size 8"
    with subprocess.Popen(
        [sys.executable, "-m", "bppsa_cupy.tools.train", *words.split()],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    ) as trained:  # fmt: skip
        assert [trained.stdout.readline().split(":")[0] for _ in range(2)][1] == "epoch 1"
        (folder / "go").touch()  # without which the second epoch does not begin
        out, err = trained.communicate()
    assert (trained.returncode, err) == (0, "")
    assert out.startswith("epoch 2: ") and "\r" not in out


def test_a_reader_that_has_seen_enough_is_no_error():
    call = "cli.run_command(lambda a: print('x' * 200000), None)"
    script = f"from bppsa_cupy.tools import cli; import sys; sys.exit({call})"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE, encoding="utf-8", check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
