"""The errors a caller can meet. Every message names both sides of a mismatch and the fix."""

from __future__ import annotations

#: Characters that a message has at most, and that the cause of an error takes in one.
LONGEST, LONGEST_REASON = 2000, 300


class BppsaError(ValueError):
    """Base class of all errors of this package, derived from ValueError.

    Messages longer than 2,000 characters are shortened in the middle.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> issubclass(bp.ShapeError, bp.BppsaError), issubclass(bp.BppsaError, ValueError)
    (True, True)
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(_without_middle(message, LONGEST))


def reason_of(cause: BaseException) -> str:
    """The message of another library's error in one line, or its class name."""
    message = cause.args[0] if isinstance(cause, KeyError) and cause.args else cause
    return _without_middle(" ".join(str(message).split()), LONGEST_REASON) or type(cause).__name__


def _without_middle(text: str, most: int) -> str:
    """`text` in at most `most` characters, without its middle if it is longer."""
    if len(text) <= most:
        return text
    end = most // 3
    begin = most - end - len(gap := f" … ({len(text)} characters) … ")
    return text[:begin] + gap + text[-end:]


class ShapeError(BppsaError):
    """A size, shape or dtype is invalid, or does not match another one.

    Attributes
    ----------
    place : str
        The name of the layer that raised the error, such as "3.body.1". "" outside of networks.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Sequential([bp.Linear(4, 3)], input_shape=(5,))
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.ShapeError: layer 0: Linear(4, 3) got input (5,): the last size of the input must be 4
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"layer {place}: {message}" if place else message)
        self.message, self.place = _without_middle(message, LONGEST), place

    def at(self, place: str) -> ShapeError:
        """Return a copy of this error, with `place` in front of the layer's name."""
        return ShapeError(self.message, f"{place}.{self.place}" if self.place else place)


class ArgumentError(BppsaError):
    """An argument that is neither a shape nor a dtype has a wrong value or type.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.RNN(3, 5, outputs="first")
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.ArgumentError: RNN got outputs='first': pass one of 'all', 'last'
    """


class CellError(BppsaError):
    """The definition of a recurrent cell cannot be used.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Cell("leaky", gates=[], states=["h"], step=lambda x, u, s, p: s.h)
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.CellError: cell 'leaky' has no gates: name at least one, such as gates=['h']
    """


class LabelError(BppsaError):
    """A class label is out of range, or every label is ignored.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.cross_entropy([[0.0, 0.0]], [2])
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.LabelError: label 2 of sample 0 is out of range: pass labels from 0 to 1
    """


class PlanError(BppsaError):
    """A plan cannot be made, read or used.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Plan.load("missing.h5")
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.PlanError: ...
    """


class PlanMismatchError(PlanError):
    """A plan was made for another network, scan or matrix pattern. The message names what differs.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> a, b = (bp.Sequential([bp.Linear(n, 2), bp.Tanh()], (n,), device="host") for n in (3, 4))
    >>> b.use(a.plan())
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.PlanMismatchError: ...
    """


class PassError(BppsaError):
    """A forward pass is missing or outdated, or a pass does not support the requested computation.

    For example, parameters have changed since the forward pass, or a layer couples the samples of a batch and
    therefore has no Jacobian per sample.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Sequential([bp.Tanh()], input_shape=(3,), device="host").backward([[1.0, 1.0, 1.0]])
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.PassError: backward was called before forward: run net.forward(x) first
    """


class JacobianFileError(BppsaError):
    """A file of Jacobians is missing or damaged, or has another format.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.load_jacobians("missing.h5")
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.JacobianFileError: ...
    """


class CheckpointError(BppsaError):
    """A checkpoint or state dict is damaged, or belongs to another network or optimizer.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Sequential([bp.Linear(2, 2)], input_shape=(2,), device="host").load_state_dict({})
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.CheckpointError: ...
    """


class PruneError(BppsaError):
    """A network cannot be pruned as requested.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.prune(bp.Sequential([bp.Tanh()], input_shape=(3,), device="host"), 0.9)
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.PruneError: the network has no Conv2d or Linear layer: there is nothing to prune
    """


class DataError(BppsaError):
    """A data set cannot be read or used.

    Examples
    --------
    >>> from bppsa_cupy.data import load
    >>> load("missing.npz")
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.DataError: ...
    """


class DeviceError(BppsaError):
    """A device is missing, not supported or short of memory, or arrays are on different devices.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Sequential([bp.Tanh()], input_shape=(3,), device="tpu")
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.DeviceError: device 'tpu' is unknown: pass 'auto', 'cuda' ...
    """


class DistributedError(BppsaError):
    """Ranks cannot start or work together, for example because MPI is missing or their arguments differ.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.accumulate(bp.Sequential([bp.Tanh()], input_shape=(3,), device="host"), 0)
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.DistributedError: ...
    """


class NonFiniteError(BppsaError):
    """A loss, gradient, state or Jacobian contains NaN or infinity. The message names the step or place.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> raise bp.NonFiniteError("the loss is nan at step 3: lower the learning rate")
    Traceback (most recent call last):
        ...
    bppsa_cupy.errors.NonFiniteError: the loss is nan at step 3: lower the learning rate
    """
