"""Install each of the given wheels and sdists in an environment of its own, and try it in an empty folder.

python .ci/dist.py dist/*
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TRIED = """
import subprocess, sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import bppsa_cupy as bp

assert Path(bp.__file__).is_relative_to(sys.prefix), bp.__file__
assert bp.__version__ == version("bppsa-cupy")

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant
assert all("__global__" in kernel.source(Variant()) for kernel in KERNELS.values())

layers = [bp.Conv2d(1, 4, 3), bp.Tanh(), bp.Flatten(), bp.Linear(144, 10)]
net = bp.Sequential(layers, input_shape=(1, 8, 8), dtype="float64")
net.use(net.plan(batch_size=4))
x, labels = np.random.default_rng(0).standard_normal((4, 1, 8, 8)), [1, 2, 3, 4]
loss, gradient = bp.cross_entropy(net.forward(x), labels)
net.backward(gradient, method="bp")
expected = net.gradients.to_host()
net.backward(gradient, method="blelloch")
for name, found in net.gradients.to_host().items():
    np.testing.assert_allclose(found, expected[name], rtol=1e-10, atol=1e-12)
bp.Adam(net.parameters).step(net.gradients)
assert bp.cross_entropy(net.forward(x), labels)[0] < loss

for words in (["build", "lenet5", "--batch-size", "2", "-o", "plan.h5"], ["show", "plan.h5"]):
    subprocess.run([Path(sys.prefix, "bin", "bppsa-plan"), *words], check=True, stdout=subprocess.DEVNULL)
print("works:", bp.__version__, bp.__file__)
"""


def main(files: list[str]) -> int:
    """Every file; the first that fails ends it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if not files:
        sys.exit(__doc__)
    for file in map(Path, files):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "environment")
            venv.create(place, with_pip=True)
            python = place / "bin" / "python"
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(file.resolve())]
            for words, where in ((install, folder), (["-c", TRIED], tempfile.mkdtemp(dir=folder))):
                subprocess.run([python, *words], check=True, cwd=where, env=environment)
        print(f"{file.name} installs and runs", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
