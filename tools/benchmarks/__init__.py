"""The benchmarks of bppsa-bench: `TABLE` has a row for each.

A module's function yields the cases of a benchmark (`harness.Case`), each with callables for our side and its
rivals. Modules are imported when their benchmark runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bppsa_cupy.tools import cli


@dataclass(frozen=True)
class Benchmark:
    """A row of the table.

    Attributes
    ----------
    cases : str
        "module:function", which yields cases.
    options : str
        Function of `options` that adds the benchmark's options; "" where there are none.
    against : tuple of str
        Rivals of --against.
    several : int, default 1
        How many of them are the default, from the first.
    rows : str
        "module:function", which gives rows instead of cases.
    facts : str
        "module:function", which gives rows that need no measurement, before the others.
    """

    summary: str
    cases: str = ""
    options: str = ""
    against: tuple[str, ...] = ("torch", "none")
    several: int = 1
    rows: str = ""
    facts: str = ""

    def find(self, name: str) -> Any:
        """A function of a benchmark's module."""
        return cli.imported(f"benchmarks.{name}")


SPARSE = ("scipy", "cupyx", "none")
TABLE = {
    "gru": Benchmark(
        "The paper's GRU on MFCC features: forward and backward pass (table 6).", "recurrent:cases_of_paper"
    ),
    "jacobians": Benchmark(
        "Values of CSR Jacobians against PyTorch's autograd, one column at a time (table 1).",
        "jacobians:cases", "add_jacobians", facts="jacobians:sizes",
    ),
    "jax": Benchmark(
        "A function of bppsa_cupy.jax against the same cell in jax.lax.scan, and against bp.Sequential.",
        "recurrent:cases_of_modules", "add_jax", ("jax", "none"),
    ),
    "linear": Benchmark(
        "Linear recurrences against PyTorch, JAX, and a copy of the arrays.",
        "linear:cases", against=("torch", "jax", "copy"), several=3,
    ),
    "pipeline": Benchmark(
        "Training through a pipeline on several ranks against one process.",
        rows="ranks:run_pipelines", options="add_pipeline", against=("one",),
    ),
    "product": Benchmark(
        "Planned products of solvers' matrices against SciPy, and MKL with its pattern stored.",
        "products:product_cases", "add_product", ("scipy", "mkl", "none"),
    ),
    "programs": Benchmark(
        "Training steps of whole PyTorch programs, unconverted and converted.", "programs:cases"
    ),
    "ranks": Benchmark(
        "Passes over several ranks against one process.",
        rows="ranks:run_ranks", options="add_ranks", against=("one",),
    ),
    "recurrent": Benchmark(
        "RNN, GRU and LSTM of many sizes: forward and backward pass.",
        "recurrent:cases_of_grid", "add_grid", ("torch", "jax", "none"),
    ),
    "rnn": Benchmark(
        "The paper's RNN on bitstreams: forward and backward pass (tables 4 and 5).",
        "recurrent:cases_of_paper",
    ),
    "spgemm": Benchmark(
        "Products in the up-sweep of a pruned network against A @ B in SciPy or cupyx.",
        "products:spgemm_cases", "add_spgemm", SPARSE,
    ),
    "steps": Benchmark(
        "Training steps, plain and as one CUDA graph, against PyTorch: eager, in a CUDA graph, compiled.",
        "steps:cases", "add_steps", against=("torch", "compile", "none"),
    ),
    "torch": Benchmark(
        "A module of bppsa_cupy.torch against torch.nn, and against bp.Sequential.",
        "recurrent:cases_of_modules", "add_torch",
    ),
    "train": Benchmark(
        "A step of a model against PyTorch, SparseProp and the converted model.",
        "train:cases", "add_train", ("torch", "masked", "sparseprop", "converted", "compact", "none"),
    ),
    "warm": Benchmark(
        "Compile the kernels of models ahead, so that their first run starts at once.",
        rows="warm:warm_models", options="add_warm", against=(),
    ),
}  # fmt: skip
