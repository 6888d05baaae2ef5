"""Learning-rate schedules: what the rate is multiplied by at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bppsa_cupy.errors import ArgumentError

#: The numbers behind each name: integers of at least 1 in capitals, others finite and at least 0.
FORMS = {
    "step": ("EPOCHS", "gamma"),
    "half": ("EPOCHS",),
    "inv": ("gamma", "power"),
    "cosine": ("STEPS",),
    "warmup": ("STEPS",),
}
FORM = (
    "step:EPOCHS:GAMMA, half:EPOCHS, inv:GAMMA:POWER, cosine, cosine:STEPS or warmup:STEPS, joined by commas"
)


@dataclass(frozen=True)
class RateSchedule:
    """A learning-rate schedule: the product of its parts, each used once.

    Notes
    -----
    Parts, where `step` counts the previous steps:

    - "step:EPOCHS:GAMMA": GAMMA ** (epoch // EPOCHS), as PyTorch's StepLR over epochs. "half:EPOCHS" has 0.5.
    - "inv:GAMMA:POWER": (1 + GAMMA step) ** -POWER, as Caffe's "inv".
    - "warmup:STEPS": (step + 1) / STEPS in the first STEPS steps, then 1.
    - "cosine:STEPS": half a cosine from 1 after the warm-up to 0 at step STEPS, as PyTorch's
      CosineAnnealingLR (Loshchilov and Hutter 2017, equation 5). `over` sets missing STEPS.

    The rate follows from the step number only, so resumed training has the same bits.
    """

    parts: tuple[tuple[str, tuple[float, ...]], ...]

    @classmethod
    def read(cls, text: str) -> RateSchedule:
        """Parse a schedule, such as "warmup:500,cosine". Raises ArgumentError naming an unknown part."""
        parts = tuple(_read_part(part.strip()) for part in text.split(","))
        names = [name for name, _ in parts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ArgumentError(f"the schedule {text!r} has {twice} twice: pass {twice} only once")
        return cls(parts)

    def over(self, steps: int) -> RateSchedule:
        """Return this schedule for training of `steps` steps, which a cosine without STEPS needs.

        Raises ArgumentError if the warm-up leaves no steps to the cosine.
        """
        ends = {"cosine": (steps,)}
        parts = tuple((name, values or ends[name]) for name, values in self.parts)
        for name, values in parts:
            if name == "cosine" and values[0] <= self._warmup:
                raise ArgumentError(
                    f"the warm-up has {self._warmup} steps, but the cosine ends at step {values[0]}: use a "
                    "shorter warm-up, or train for more steps"
                )
        return RateSchedule(parts)

    @property
    def _warmup(self) -> int:
        return next((int(values[0]) for name, values in self.parts if name == "warmup"), 0)

    def factor(self, step: int, per_epoch: int) -> float:
        """Return the factor of the rate after `step` steps, with `per_epoch` steps per epoch."""
        result, epoch = 1.0, step // per_epoch
        for name, values in self.parts:
            if name == "step":
                result *= values[1] ** (epoch // values[0])
            elif name == "half":
                result *= 0.5 ** (epoch // values[0])
            elif name == "inv":
                result *= (1 + values[0] * step) ** -values[1]
            elif name == "warmup":
                result *= min((step + 1) / values[0], 1.0)
            else:
                done = (step - self._warmup) / (values[0] - self._warmup)
                result *= (1 + math.cos(math.pi * min(max(done, 0.0), 1.0))) / 2
        return result

    def __str__(self) -> str:
        return ",".join(":".join([name, *map(repr, values)]) for name, values in self.parts)


def _read_part(text: str) -> tuple[str, tuple[float, ...]]:
    name, *words = text.split(":")
    form = FORMS.get(name)
    if form is None or (len(words) != len(form) and not (name == "cosine" and not words)):
        raise ArgumentError(f"{text!r} is not a learning-rate schedule: pass {FORM}")
    try:
        values = tuple(
            int(word) if kind.isupper() else float(word) for kind, word in zip(form, words, strict=False)
        )
    except ValueError as cause:
        raise ArgumentError(f"{text!r} is not a learning-rate schedule ({cause}): pass {FORM}") from cause
    for kind, value in zip(form, values, strict=False):
        least = 1 if kind.isupper() else 0
        if not least <= value < math.inf:
            raise ArgumentError(
                f"the schedule {text!r} has {kind.upper()} {value}: pass a finite number of at least {least}"
            )
    return name, values
