"""Files of unknown origin are read in a child process first, those that this package sealed are not."""

import os
import subprocess
import sys
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from damaged_hdf5 import damaged
from plan_cases import plan_of, random_chain
from seals import without_seal

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import BppsaError, DataError, JacobianFileError, PlanError
from bppsa_cupy.plan import Plan
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.system import hdf5, trial, walk_hdf5
from bppsa_cupy.tools import jacobians as jacobians_tool
from bppsa_cupy.tools import plan as plan_tool
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint


@pytest.fixture
def plan(tmp_path):
    plan_of(random_chain(3)).save(tmp_path / "p.h5")
    return tmp_path / "p.h5"


@pytest.fixture
def jacobians(tmp_path):
    record = JacobianRecord(2, "ReLU", Pattern.diagonal(4), np.arange(4, dtype=np.float32))
    save_jacobians(tmp_path / "j.h5", [record])
    return tmp_path / "j.h5"


@pytest.fixture
def tried(monkeypatch):
    """The names of the files that are read in a child process, which is left out."""
    names = []
    monkeypatch.setattr(hdf5, "try_reading", lambda path, unread, error: names.append(path.name))
    return names


# ---- which files ----


def test_sealed_files_of_ours_start_no_process(plan, jacobians, tried):
    Plan.load(plan)
    Plan.outline(plan)
    load_jacobians(jacobians)
    assert tried == []


def test_files_of_others_do(plan, jacobians, tried):
    Plan.load(plan, foreign=True)
    Plan.outline(plan, foreign=True)
    Plan.outline(plan, verify=False)
    load_jacobians(jacobians, foreign=True)
    without_seal(jacobians)
    load_jacobians(jacobians, sealed=False)
    product = bp.plan_product(Pattern.diagonal(2), Pattern.dense(2, 1))
    product.save(plan.with_name("product.h5"))
    bp.PlannedProduct.load(plan.with_name("product.h5"))
    bp.PlannedProduct.load(plan.with_name("product.h5"), foreign=True)
    assert tried == [plan.name] * 3 + [jacobians.name] * 2 + ["product.h5"]


def test_so_do_commands_that_look_at_a_file(plan, jacobians, tried):
    for command in (["show"], ["verify"], ["draw", "-o", str(plan.with_suffix(".png"))], ["flops"]):
        assert plan_tool.main([command[0], str(plan), *command[1:]]) == 0
    assert jacobians_tool.main(["show", str(jacobians)]) == 0
    assert tried == [plan.name] * 4 + [jacobians.name]


# ---- what is read in the child ----


def test_a_sound_file_is_read_as_it_is(plan, jacobians, tmp_path):
    assert Plan.load(plan, foreign=True).fingerprint == Plan.load(plan).fingerprint
    without_seal(jacobians)
    assert load_jacobians(jacobians, sealed=False)[0].pattern == Pattern.diagonal(4)
    path = tmp_path / "c.h5"
    save_checkpoint(path, Checkpoint({}, "float32", {"w": np.ones(3)}))
    assert load_checkpoint(path, foreign=True).parameters["w"].tolist() == [1, 1, 1]


def test_what_the_library_states_is_left_to_the_reader(tmp_path):
    path = tmp_path / "a.h5"
    with hdf5.create(path, sealed=False) as file:
        hdf5.write_array(file, "x", np.arange(10.0))
        hdf5.write_array(file, "y", np.arange(3.0))
    content = bytearray(path.read_bytes())
    content[content.index(np.arange(10.0).tobytes()) + 5] ^= 1
    path.write_bytes(content)
    with hdf5.open_file(path, sealed=False, error=DataError) as file:
        assert hdf5.read_array(file, "y", kinds="f", error=DataError).tolist() == [0, 1, 2]
    with (
        pytest.raises(DataError, match=r"a\.h5 cannot be read"),
        hdf5.open_file(path, sealed=False, error=DataError) as file,
    ):
        hdf5.read_array(file, "x", kinds="f", error=DataError)


def test_circles_and_links_are_walked_once(tmp_path, monkeypatch):
    path, read = tmp_path / "a.h5", []
    with h5py.File(path, "w") as file:
        file["g/x"] = np.arange(3)
        file["g/again"] = file["g/x"]
        file["g/up"] = file["/"]
        file["soft"] = h5py.SoftLink("/g")
        file["nowhere"] = h5py.SoftLink("/none")
        file["outside"] = h5py.ExternalLink("none.h5", "/")
        file["skipped/y"] = np.arange(3)
    monkeypatch.setattr(walk_hdf5, "_read", lambda array: read.append(array.name))
    with h5py.File(path) as file:
        walk_hdf5._walk(h5py, file, {"/skipped"})
    assert [name.rpartition("/")[2] for name in read] in (["x"], ["again"])


@pytest.mark.parametrize("damaged", ["one object", "every object"])
def test_an_object_that_cannot_be_told_ends_no_walk(tmp_path, monkeypatch, damaged):
    path, read = tmp_path / "a.h5", []
    with h5py.File(path, "w") as file:
        file["a/x"], file["b/y"], file["c/z"] = 1, 2, 3
        file["c/up"] = file["/"]

    def get_info(identity):
        if damaged == "every object" or h5py.h5i.get_name(identity) == b"/b":
            raise RuntimeError("Can't get deprecated info for object")
        return h5py.h5o.get_info(identity)

    library = SimpleNamespace(h5o=SimpleNamespace(get_info=get_info), Group=h5py.Group, Dataset=h5py.Dataset)
    monkeypatch.setattr(walk_hdf5, "_read", lambda array: read.append(array.name))
    with h5py.File(path) as file:
        walk_hdf5._walk(library, file, set())
    assert {"x", "y", "z"} <= {name.rpartition("/")[2] for name in read}


def test_members_up_to_one_that_cannot_be_told_are_walked():
    class Cut(dict):
        def __iter__(self):
            yield "a"
            raise RuntimeError("Object visitation failed")

    assert walk_hdf5._all(Cut(a=1, b=2)) == [1]


# ---- what becomes of the child ----


def child(tmp_path, monkeypatch, work):
    """Let the child do `work`, under the limits, in place of reading."""
    program = tmp_path / "child.py"
    program.write_text(
        f"import json, sys\nsys.path[:] = json.loads(sys.argv[1])\n{LIMITED}{work}\n", encoding="utf-8"
    )
    monkeypatch.setattr(walk_hdf5, "__file__", str(program))
    monkeypatch.setattr(trial, "SECONDS", 1)


LIMITED = """
import importlib.util
found = importlib.util.spec_from_file_location("walk", PLACE)
walk = importlib.util.module_from_spec(found)
found.loader.exec_module(walk)
walk._limit(int(sys.argv[3]), int(sys.argv[4]))
""".replace("PLACE", repr(walk_hdf5.__file__))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ("while True: pass", "came to no end with it in 1 s"),
        ("import os; os.kill(os.getpid(), 11)", "crashed with it .SIGSEGV"),
        ("walk._try(bytearray, 2**40)", "takes more than 107[0-9]{7} bytes of memory"),
        ("walk._try(int, 'x'); raise RuntimeError('no h5py')", "failed .RuntimeError: no h5py"),
    ],
)
def test_how_it_ended_is_told(plan, tmp_path, monkeypatch, work, message):
    child(tmp_path, monkeypatch, work)
    with pytest.raises(
        PlanError, match=rf"p\.h5 cannot be read: .*{message}.*: its structure is damaged, give"
    ):
        Plan.load(plan, foreign=True)


def test_a_child_that_waits_is_not_waited_for(plan, tmp_path, monkeypatch):
    child(tmp_path, monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(trial, "PATIENCE", 1)
    with pytest.raises(PlanError, match="came to no end"):
        Plan.load(plan, foreign=True)


def test_a_child_that_cannot_start_is_told(plan, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(PlanError, match=r"p\.h5 cannot be tried in a child process first .No such file"):
        Plan.load(plan, foreign=True)


def test_the_memory_is_limited(plan, monkeypatch):
    monkeypatch.setattr(trial, "MEMORY", 0)
    with pytest.raises(PlanError, match=r"p\.h5 cannot be read: the HDF5 library"):
        Plan.load(plan, foreign=True)


# ---- what is looked at before ----


def test_what_is_no_path_and_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "pipe", "pipe is no regular file"),
        (0, "0 is no path"),
        (None, "None is"),
    ):
        with pytest.raises(PlanError, match=message):
            Plan.load(path)


def test_an_array_that_does_not_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "LARGE", 100)
    monkeypatch.setattr(hdf5, "free_host_memory", lambda: 1000)
    with hdf5.create(tmp_path / "a.h5") as file:
        hdf5.write_array(file, "small", np.zeros(100))
        hdf5.write_array(file, "large", np.zeros(200))
    with hdf5.open_file(tmp_path / "a.h5") as file:
        hdf5.read_array(file, "small", kinds="f", error=BppsaError)
        with pytest.raises(BppsaError, match=r"a.h5: /large takes 1600 bytes, 1000 are free"):
            hdf5.read_array(file, "large", kinds="f", error=BppsaError)


# ---- files that were found ----


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        ("load_jacobians", "loops for ever"),
        ("bppsa-jacobians show", "crashes"),
        pytest.param("the same, sealed by someone", "loops for ever", marks=pytest.mark.long),
        ("the same, sealed by someone", "crashes"),
    ],
)
def test_what_breaks_the_library_is_refused(tmp_path, capsys, monkeypatch, kind, reader):
    """In this process, which the library would hold up for ever, or end."""
    path, content = tmp_path / "j.h5", damaged(kind)
    monkeypatch.setattr(trial, "SECONDS", 1)
    path.write_bytes(content)
    if reader == "load_jacobians":
        with pytest.raises(JacobianFileError, match=r"j\.h5 cannot be read: the HDF5 library"):
            load_jacobians(path, sealed=False)
        return
    options = ["--unsealed"]
    if reader != "bppsa-jacobians show":
        path.write_bytes(bytes(hdf5.USER_BLOCK) + content)
        with open(path, "rb") as raw:
            seal = hdf5._seal(raw)
        path.write_bytes(seal + content)
        options = []
    assert jacobians_tool.main(["show", str(path), *options]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path} cannot be read: the HDF5 library") and said.count("\n") == 1


# ---- threads ----

NO_ROOM = """
import resource, sys
from bppsa_cupy.data.ahead import ahead
from bppsa_cupy.plan import Plan
from threading import Thread
from bppsa_cupy.errors import PlanError
first = Thread(target=int)
first.start()
first.join()  # its stack stays, and the next thread starts on it
with open("/proc/self/statm") as pages:
    taken = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken, taken))
for call in (lambda: Plan.load(sys.argv[1]), lambda: list(ahead(iter([1, 2])))):
    try:
        call()
        print("done")
    except (MemoryError, PlanError) as error:
        print(type(error).__name__)
"""


def test_an_exhausted_address_space_ends_no_call_in_waiting(plan):
    command = [sys.executable, "-c", NO_ROOM, str(plan)]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split()[1] == "MemoryError"
    assert ended.stdout.split()[0] in ("done", "PlanError", "MemoryError")
