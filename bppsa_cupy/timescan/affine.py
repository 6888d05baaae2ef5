"""All states of a walk whose step is affine in them, by chunks: exact, without an iteration.

An affine step's Jacobian holds no state, so from any states that are assumed before the chunks Newton's first
step leads to the true ones (newton.py): chunks are walked from zeros, and what their ends miss goes on by the
products of their Jacobians, P x P for each unit, P states.
"""

from __future__ import annotations

import numpy as np

from bppsa_cupy.timescan.newton import NewtonForward


class AffineForward(NewtonForward):
    """A forward pass of one walk by chunks, bound to its arrays: calling it fills `state`, `gates` and
    `final`.

    Law: the states are those of the serial pass up to rounding. Where one before a chunk is not finite, as
    where a product left the range, the serial pass is run; `description` says so of the latest call.
    """

    _is_finite = True

    def __call__(self) -> None:
        self._is_finite = True
        if self._chunks < 2:
            self._serial()
            return
        xp = self._device.xp
        with np.errstate(over="ignore", invalid="ignore"):  # where the serial pass is taken
            starts, _ = self._begin()
            for launch in (self._walk_pieces, self._miss, self._reduce, self._corrections[1.0]):
                launch()
            starts[1:] = self._step[:-1]
            found = xp.stack([xp.isfinite(starts).all()])
            self._is_finite = bool(self._device.to_host(found)[0])
            if self._is_finite:
                self._walk_pieces()
                self._put()
            else:
                self._serial()

    @property
    def description(self) -> str:
        """What the latest call ran."""
        again = "" if self._is_finite else "; a state was not finite: run serially"
        return f"chunked, {self._chunks} chunks of {self._chunk}{again}"
