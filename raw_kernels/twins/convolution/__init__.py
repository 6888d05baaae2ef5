"""Convolutions of twins: by shifted views, patches, taps or minimal filtering."""
