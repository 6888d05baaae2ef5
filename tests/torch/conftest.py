"""The kernels compute all passes here, where their results are compared with PyTorch's."""

from __future__ import annotations

import pytest

from bppsa_cupy.torch import handover


@pytest.fixture(autouse=True)
def kernels_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "is_faster", lambda *sizes: False)
    monkeypatch.setattr(handover, "_decisions", {})
