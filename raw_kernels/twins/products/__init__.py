"""Matrix products of twins, in tiles of registers, and the order in which they read their operands."""
