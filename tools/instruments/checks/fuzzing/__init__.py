"""What `make fuzz` plays: mutated files, arguments, and the property tests on new examples."""
