"""Instruments of the authors, which no wheel holds: machine code, launches on paper, check programs."""
