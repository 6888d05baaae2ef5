"""What faults are put into, and the tests that speak of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mutating.mutant import ROOT


class Subject(NamedTuple):
    """files, tests: patterns below the checkout, and below tests/."""

    files: tuple[str, ...]
    tests: tuple[str, ...]

    def sources(self) -> list[str]:
        """Paths of the files, below the checkout."""
        found = {path for pattern in self.files for path in ROOT.glob(pattern)}
        return sorted(path.relative_to(ROOT).as_posix() for path in found)

    def test_files(self) -> list[Path]:
        return sorted({path for pattern in self.tests for path in (ROOT / "tests").glob(f"*/{pattern}")})


#: Files of predicted times, which tests hold to tables of measurements within a factor.
FITTED = ("bppsa_cupy/processors/warps.py",)

PYTHON = {
    "plan": Subject(
        ("bppsa_cupy/plan/**/*.py", "bppsa_cupy/system/calibration.py"),
        ("test_plan_*.py", "test_schedule*.py", "test_partition.py", "test_search_ranks.py",
         "test_calibration.py", "test_rank_times.py", "test_rank_memory.py", "test_symbolic.py",
         "test_network.py"),
    ),
    "scan": Subject(
        ("bppsa_cupy/scan/*.py",),
        ("test_scan*.py", "test_launches.py", "test_backward.py", "test_residual_scans.py",
         "test_rank_memory.py"),
    ),
    "timescan": Subject(
        ("bppsa_cupy/timescan/*.py",),
        ("test_timescan*.py", "test_processor*.py", "test_state_gradients.py", "test_recurrent*.py",
         "test_residual_recurrent.py", "test_heads.py", "test_cell_layers.py", "test_functional.py",
         "test_functional_kept.py", "test_shared_memory.py", "test_calibration_walks.py",
         "test_bench_calibrate_walks.py", "test_launch_limits.py"),
    ),
    "patterns": Subject(
        ("bppsa_cupy/csr.py", "bppsa_cupy/geometry.py"),
        ("test_pattern.py", "test_geometry.py", "test_jacobian*.py", "test_products*.py", "test_layers*.py",
         "test_conv2d*.py", "test_symbolic.py"),
    ),
    "optimizers": Subject(
        tuple(f"bppsa_cupy/training/{name}.py"
              for name in ("optimizer", "optimizers", "continuing", "groups", "clipping", "schedules",
                           "losses")),
        ("test_optimizer*.py", "test_lr_schedules.py", "test_clipping.py", "test_losses.py",
         "test_checkpoint.py", "test_pipeline.py", "test_prune.py", "test_training_arguments.py",
         "test_training_stops.py"),
    ),
}  # fmt: skip
