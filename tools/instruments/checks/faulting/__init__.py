"""What `make faults` does to the commands that write files."""
