"""The architecture that a network has at present: its own, or what it takes from another network's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.network.architecture import Architecture


class CurrentArchitecture:
    """The architecture of a network, of either mode; masks make another one."""

    def __init__(self, current: Architecture) -> None:
        self._current = current

    @property
    def current(self) -> Architecture:
        """The present architecture."""
        return self._current

    def with_masks(self, masks: Mapping[str, Any]) -> Architecture:
        """The present architecture with these masks in place of its own, for `take`. Raises ShapeError."""
        return self._current.with_masks(masks)

    def take(self, architecture: Architecture) -> None:
        """Let this architecture be the present one."""
        self._current = architecture


class CurrentPart(CurrentArchitecture):
    """The architecture of consecutive layers of another network, with the masks that they have there now."""

    def __init__(self, whole: CurrentArchitecture, layers: range) -> None:
        self._whole, self._layers = whole, layers
        self._of = whole.current
        super().__init__(self._of.part(layers))

    @property
    def current(self) -> Architecture:
        if self._whole.current is not self._of:
            self._of = self._whole.current
            self._current = self._of.part(self._layers)
        return self._current

    def with_masks(self, masks: Mapping[str, Any]) -> Architecture:
        first, stop = self._layers.start, self._layers.stop
        raise ShapeError(
            f"masks of {', '.join(masks) or 'nothing'} were given to net[{first}:{stop}], a part of a "
            "network: set them, or prune, on the whole network, whose parameters these are"
        )
