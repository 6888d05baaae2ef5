"""The symbolic product: pattern, kind and maps of C = A·B."""
