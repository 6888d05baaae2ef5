"""The machine and its files: writing whole files, HDF5, Ctrl-C, memory, what machine this is."""
