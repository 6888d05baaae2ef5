"""The errors a caller can meet. Every message names both sides of a mismatch and the fix."""

from __future__ import annotations

#: Characters that a message has at most, and that the cause of an error takes in one.
LONGEST, LONGEST_REASON = 2000, 300


class BppsaError(ValueError):
    """Base of every error this package raises for a caller's mistake or a broken file.

    A message says what was given, which may be a file's text of any length: one of over LONGEST characters
    lacks its middle.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(_without_middle(message, LONGEST))


def reason_of(cause: BaseException) -> str:
    """What another library's error says, in one line, or its class where it says nothing."""
    own = cause.args[0] if isinstance(cause, KeyError) and cause.args else cause
    return _without_middle(" ".join(str(own).split()), LONGEST_REASON) or type(cause).__name__


def _without_middle(text: str, most: int) -> str:
    """`text`, in `most` characters: where it is longer, of its beginning and its end."""
    if len(text) <= most:
        return text
    end = most // 3
    begin = most - end - len(gap := f" … ({len(text)} characters) … ")
    return text[:begin] + gap + text[-end:]


class ShapeError(BppsaError):
    """An array or a layer does not have the shape or dtype that was asked for.

    place  the layer that found it, as parameters are named: "3.body.1"; "" where it is no layer of a network
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"layer {place}: {message}" if place else message)
        self.message, self.place = _without_middle(message, LONGEST), place

    def at(self, place: str) -> ShapeError:
        """The same error inside of `place`."""
        return ShapeError(self.message, f"{place}.{self.place}" if self.place else place)


class CellError(BppsaError):
    """A recurrent cell's definition cannot be used: a wrong name, a step that is not elementwise."""


class LabelError(BppsaError):
    """A class label lies outside the classes of the network's output."""


class PlanError(BppsaError):
    """A plan cannot be made, read or run: damaged file, missing schedule, too little memory."""


class PlanMismatchError(PlanError):
    """The plan was made for another network; the message names the fields that differ."""


class PassError(BppsaError):
    """A backward pass was asked of no forward pass, or of one made with other parameters."""


class JacobianFileError(BppsaError):
    """A Jacobian file is damaged, truncated or of another format."""


class CheckpointError(BppsaError):
    """A checkpoint is damaged, or belongs to another network, optimizer or dtype."""


class PruneError(BppsaError):
    """A network cannot be pruned, or not as it was asked for."""


class DataError(BppsaError):
    """A data set cannot be read: wrong size, wrong layout, missing file."""


class DeviceError(BppsaError):
    """A device is missing, or has too little memory for what was asked."""


class DistributedError(BppsaError):
    """Ranks cannot start or work together: MPI is missing, they differ, or a message does not fit."""


class NonFiniteError(BppsaError):
    """The loss or a gradient became NaN or infinite; the message names the step."""
