"""The processor that twins are compiled for: the host's, or the one that Numba is told of."""

import numba
from numba.core.codegen import get_host_cpu_features


def has(feature):
    """Whether it has a feature, by LLVM's name, as "avx512f": of those in NUMBA_CPU_FEATURES, where that is
    set."""
    features = numba.config.CPU_FEATURES
    return f"+{feature}" in (get_host_cpu_features() if features is None else features).split(",")
