"""Counts, bytes and devices as the commands tell and take them."""

import pytest
from commands import SCRIPTS, command, folder  # noqa: F401  folder is a fixture

from bppsa_cupy.devices import get_device
from bppsa_cupy.system.units import counted, in_bytes, quantity
from bppsa_cupy.tools import bench


@pytest.mark.parametrize(
    "got, expected",
    [
        (counted(0, "chain"), "0 chains"),
        (counted(1, "chain"), "1 chain"),
        (counted(1200, "entry", "entries"), "1,200 entries"),
        (counted(1, "entry", "entries"), "1 entry"),
        (in_bytes(0), "0 B"),
        (in_bytes(999), "999 B"),
        (in_bytes(28_800), "28.8 kB"),
        (in_bytes(3_000_000), "3 MB"),
        (quantity(2.5e9), "2.5 G"),
    ],
)
def test_numbers_as_text(got, expected):
    assert got == expected


def test_cpu_and_gpu_are_names_of_host_and_cuda(folder, capsys):
    assert get_device("cpu") is get_device("host")
    words = "model.py:small --data data.npz --device cpu --batch-size 8"
    assert command("bppsa-train")(words.split()) == 0
    assert capsys.readouterr().out.startswith("device host, float32")


def test_a_plan_is_told_in_units_and_within_100_columns(folder, capsys):
    plan = command("bppsa-plan")
    assert plan("build model.py:small --device cpu -o p.h5".split()) == 0
    built = capsys.readouterr().out
    assert built.endswith(" kB\n")
    assert plan("show p.h5".split()) == 0 and plan("verify p.h5".split()) == 0
    printed = built + capsys.readouterr().out
    assert "1 worker\n" in printed and "sound: 1 chain, " in printed and "\nchain 0: 3 elements, " in printed
    assert max(map(len, printed.splitlines())) <= 100


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_fits_100_columns(script, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        command(script)(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_warm_compiles_ahead(folder, capsys):
    assert bench.main("warm model.py:image --device cpu".split()) == 1
    assert bench.main(["warm", "rnn", "--device", "cpu", "--json", "w.json"]) == 0
    printed = capsys.readouterr().out
    assert "rnn" in printed and "4 passes run" in printed and "kept in " in printed
