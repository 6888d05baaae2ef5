"""Transposed Jacobians, one operator a file: its CSR pattern from geometry, and its values."""

if __name__ != "bppsa_cupy.jacobians":
    raise ImportError("import bppsa_cupy.jacobians: a bare `jacobians` would be a second copy")
