"""Transposed Jacobians as they are handed to a reader, in memory and in files."""
