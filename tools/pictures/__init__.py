"""Pictures that the commands draw, and their files."""
