"""Command lines, each a thin layer over the engine."""
