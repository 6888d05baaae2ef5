"""Memory of the host: the least of what the machine and its control groups leave, and who asks."""

import tracemalloc
from argparse import Namespace

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.jacobians.linear import LinearJacobian
from bppsa_cupy.system import memory
from bppsa_cupy.tools import cli

#: Files of /proc and /sys/fs/cgroup, and the bytes that they leave where the machine has 1000 KiB.
MACHINES = {
    "no groups": ({}, 1_024_000),
    "version 2": ({
        "proc/self/cgroup": "0::/a/b\n", "groups/memory.max": "max\n", "groups/memory.current": "99999999\n",
        "groups/a/memory.max": "5000\n", "groups/a/memory.current": "4000\n",
        "groups/a/memory.stat": "anon 1\ninactive_file 500\nactive_file 70\n",
    }, 1500),
    "over its limit": ({
        "proc/self/cgroup": "0::/\n", "groups/memory.max": "7000\n", "groups/memory.current": "8000\n",
    }, 0),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_free_memory(machine, tmp_path):
    written, free = MACHINES[machine]
    for path, text in {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 1000 kB\n", **written}.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    folders = str(tmp_path / "proc"), str(tmp_path / "groups")
    assert memory.free_host_memory(*folders) == free


def test_the_memory_to_make_a_pattern_is_known_before():
    rng = np.random.default_rng(0)
    jacobians = [LinearJacobian(700, 600), LinearJacobian(700, 600, mask=rng.random((600, 700)) < 0.5)]
    for layer, shape in (
        (bp.Conv2d(3, 16, 3, stride=2), (3, 32, 32)),
        (bp.Conv2d(32, 32, 3, padding=1), (32, 16, 16)),
        (bp.Conv2d(8, 32, 5, mask=rng.random((32, 8, 5, 5)) < 0.5), (8, 16, 16)),
    ):
        jacobians.append(layer.jacobian(shape))
    for jacobian in jacobians:
        tracemalloc.start()
        try:
            jacobian.make_pattern()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert 0.7 < jacobian.bytes_to_make() / peak < 1.4, (jacobian, jacobian.bytes_to_make(), peak)


def test_a_command_reports_an_allocation_that_fails_on_one_line(capsys):
    def main(arguments):
        raise MemoryError("Unable to allocate 618. MiB\nfor an array")

    assert cli.run_command(main, Namespace()) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: too little memory: Unable to allocate") and error.count("\n") == 1
