"""The twins of the frames: walks of a cell through time, by lanes of samples or of units."""
