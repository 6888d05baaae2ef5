"""Memory of the host: what is free, the least of what the machine, its control groups and limits leave; what
kernels take for themselves."""

import os
import platform
import resource
import subprocess
import sys
import tracemalloc
from argparse import Namespace

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.jacobians.linear import LinearJacobian
from bppsa_cupy.system import memory
from bppsa_cupy.tools import cli


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 1000 KiB available; a call writes a file of /proc or /sys/fs/cgroup."""

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 1000 kB\n")
    return write


def test_the_machine_alone(machine):
    assert memory.free_host_memory() == 1000 * 1024


@pytest.mark.parametrize("path", ["/", "/a", "/a/b"])
def test_version_2_limits(machine, path):
    machine("proc/self/cgroup", f"0::{path}\n")
    machine("groups/memory.max", "max\n")
    machine("groups/memory.current", "99999999\n")
    machine("groups/a/memory.max", "5000\n")
    machine("groups/a/memory.current", "4000\n")
    machine("groups/a/memory.stat", "anon 1\ninactive_file 500\nactive_file 70\n")
    assert memory.free_host_memory() == (1000 * 1024 if path == "/" else 1500)


def test_version_1_limits(machine):
    machine("proc/self/cgroup", "5:cpu:/x\n4:memory,hugetlb:/of/the/host\n0::/\n")
    machine("groups/memory/memory.limit_in_bytes", "7000\n")
    machine("groups/memory/memory.usage_in_bytes", "6500\n")
    machine("groups/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 100\n")
    assert memory.free_host_memory() == 600


def test_a_group_over_its_limit_leaves_nothing(machine):
    machine("proc/self/cgroup", "0::/\n")
    machine("groups/memory.max", "7000\n")
    machine("groups/memory.current", "8000\n")
    assert memory.free_host_memory() == 0


def test_the_limit_of_the_address_space(machine, monkeypatch):
    page = os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10 * page, 20 * page))
    machine("proc/self/statm", "7 5 4 3 2 1 0\n")
    assert memory.free_host_memory() == 3 * page


# ---- who asks ----


def jacobians():
    rng = np.random.default_rng(0)
    yield LinearJacobian(700, 600)
    yield LinearJacobian(70, 60, positions=100)
    yield LinearJacobian(700, 600, mask=rng.random((600, 700)) < 0.5)
    for layer, shape in (
        (bp.Conv2d(1, 24, 5, padding=2), (1, 32, 32)),
        (bp.Conv2d(3, 16, 3, stride=2), (3, 32, 32)),
        (bp.Conv2d(32, 32, 3, padding=1), (32, 16, 16)),
        (bp.Conv2d(32, 32, (3, 1), padding=1, dilation=2, groups=4), (32, 16, 16)),
        (bp.Conv2d(8, 32, 5, mask=rng.random((32, 8, 5, 5)) < 0.5), (8, 16, 16)),
    ):
        yield layer.jacobian(shape)


def test_the_memory_to_make_a_pattern_is_known_before():
    for jacobian in jacobians():
        tracemalloc.start()
        try:
            jacobian.make_pattern()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert 0.7 < jacobian.bytes_to_make() / peak < 1.4, (jacobian, jacobian.bytes_to_make(), peak)


@pytest.mark.parametrize("text", ["", "Unable to allocate 618. MiB\nfor an array"])
def test_an_allocation_that_fails_is_one_line(capsys, text):
    def main(arguments):
        raise MemoryError(text)

    assert cli.run(main, Namespace()) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: too little memory: ") and error.count("\n") == 1
    assert " ".join(text.split()) in error


STEPS = """
import resource
import numpy as np
import bppsa_cupy as bp
layers = [bp.Conv2d(32, 64, 3, padding=1), bp.ReLU(), bp.Conv2d(64, 32, 3, padding=1)]
net = bp.Sequential(layers, (32, 32, 32), device="host")
x = np.ones((32, 32, 32, 32), np.float32)
for step in range(6):
    if step == 3:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y = net.forward(x, into=net.last_pass)
    net.backward(y, method="bp")
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 3)
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_scratch_memory_is_not_made_anew_at_each_step():
    """Some megabytes a launch, which are thousands of pages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    pages = subprocess.check_output([sys.executable, "-c", STEPS], env=environment, encoding="utf-8")
    assert int(pages) < 200
