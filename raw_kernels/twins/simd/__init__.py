"""Vectors of 16 numbers in twins: operators and functions on them, copies in and out."""
