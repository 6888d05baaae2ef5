"""Audio clips of a folder or a zip archive: which class each has, and which are for the test."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from bppsa_cupy.errors import DataError, reason_of

#: "folders" a folder a class; "irmas" the same, with names that begin with the class's tag, as
#: "[cel][nod][cla]0058__1.wav"; "fsdd" names as "7_jackson_32.wav"; "names" names that match a pattern.
LAYOUTS = ("auto", "folders", "irmas", "fsdd", "names")
_IRMAS = re.compile(r"(?P<recording>(?:\d+__)?\[(?P<label>\w+)\].*?)(?:__\d+)?")
_FSDD, _FSDD_TEST = r"(?P<label>[0-9])_[^_]+_[0-9]+", r".*_[0-4]"


@dataclass(frozen=True)
class Clip:
    """A WAV file.

    name       path inside its source, with slashes
    recording  clips of one recording go to one split
    test       whether it is for the test; None where the layout does not say
    """

    name: str
    label: str
    recording: str
    test: bool | None = None


class Source:
    """The WAV files of a folder, at any depth, or of a zip archive. Raises DataError where there are none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive: zipfile.ZipFile | None = None
        if path.is_dir():
            found = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
        elif path.is_file() and zipfile.is_zipfile(path):
            try:
                self._archive = zipfile.ZipFile(path)
            except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as cause:
                raise DataError(
                    f"{path} is a damaged zip archive ({reason_of(cause)}): fetch it again"
                ) from cause
            found = self._archive.namelist()
        else:
            state = "is no zip archive" if path.exists() else "does not exist"
            raise DataError(f"{path} {state}: give a folder of WAV files or a zip archive of one")
        self.names = sorted(name for name in found if _is_wav(PurePosixPath(name)))
        if not self.names:
            raise DataError(f"{path} holds no WAV file: give a folder that does, or a zip archive of one")

    def read(self, name: str) -> bytes:
        """The bytes of one file; may be called from several threads."""
        try:
            if self._archive is None:
                return (self.path / name).read_bytes()
            return self._archive.read(name)
        except Exception as cause:  # zipfile and its decompressors raise what they like
            raise DataError(
                f"{self.path}: {name} cannot be read ({reason_of(cause)}): fetch it again"
            ) from cause


def find_clips(
    source: Source, layout: str = "auto", pattern: str | None = None, test: str | None = None
) -> list[Clip]:
    """The clips of `source`, by name.

    layout   one of LAYOUTS; "auto" looks at the names
    pattern  of "names": a regular expression for the whole name without ".wav", with a group "label"
    test     a regular expression for the whole name without ".wav": those that match are for the test, the
             others for training; "fsdd" has its own
    Raises DataError naming the first file that does not fit, or where there is one class alone.
    """
    if layout == "auto":
        layout = "names" if pattern is not None else _guess(source)
    if (layout == "names") != (pattern is not None):
        raise DataError(
            f"layout {layout!r} with the pattern {pattern!r}: names take a pattern, no other does"
        )
    of_name: Callable[[str], Clip]
    if layout == "irmas":
        of_name = _irmas_clip
    elif layout == "folders":
        of_name = _folder_clip
    else:
        if layout == "fsdd":
            pattern, test = _FSDD, test or _FSDD_TEST
        of_name = _clip_by_pattern(pattern or "")
    clips = [of_name(name) for name in source.names]
    if test is not None:
        expression = _compile(test)
        clips = [
            replace(clip, test=expression.fullmatch(PurePosixPath(clip.name).stem) is not None)
            for clip in clips
        ]
    labels = sorted({clip.label for clip in clips})
    if len(labels) < 2:
        raise DataError(
            f"{source.path} holds {len(clips)} clips of the class {labels[0]!r} alone: two classes at least; "
            "see --layout and --pattern"
        )
    return clips


def split_clips(clips: list[Clip], fraction: float, seed: int) -> tuple[list[Clip], list[Clip]]:
    """Training and test clips: as the layout says, or `fraction` of every class's recordings for the test.

    Which ones follows from `seed`. Raises DataError where no training clip is left.
    """
    if any(clip.test is None for clip in clips):
        generator = np.random.default_rng(seed)
        chosen: set[tuple[str, str]] = set()
        for label in sorted({clip.label for clip in clips}):
            recordings = sorted({clip.recording for clip in clips if clip.label == label})
            order = generator.permutation(len(recordings))
            chosen |= {(label, recordings[k]) for k in order[: round(fraction * len(recordings))]}
        clips = [replace(clip, test=(clip.label, clip.recording) in chosen) for clip in clips]
    train, test = ([clip for clip in clips if clip.test == wanted] for wanted in (False, True))
    if not train:
        raise DataError(f"all {len(test)} clips are for the test: give another --test or --test-fraction")
    return train, test


def _is_wav(name: PurePosixPath) -> bool:
    hidden = any(folder.startswith(".") or folder == "__MACOSX" for folder in name.parts)
    return name.suffix.lower() == ".wav" and not hidden


def _guess(source: Source) -> str:
    paths = [PurePosixPath(name) for name in source.names]
    if all(re.fullmatch(_FSDD, path.stem) for path in paths):
        return "fsdd"
    if all((match := _IRMAS.fullmatch(path.stem)) and match["label"] == path.parent.name for path in paths):
        return "irmas"
    if all(path.parent.name for path in paths):
        return "folders"
    raise DataError(
        f"{source.path} has {paths[0]} in no folder of a class: give --pattern, a regular expression that "
        "finds the label in the name, as '(?P<label>[0-9]+)_.*'"
    )


def _folder_clip(name: str) -> Clip:
    label = PurePosixPath(name).parent.name
    if not label:
        raise DataError(f"{name} lies in no folder of a class: move it into one, or give --pattern")
    return Clip(name, label, name)


def _irmas_clip(name: str) -> Clip:
    path = PurePosixPath(name)
    match = _IRMAS.fullmatch(path.stem)
    if match is None or match["label"] != path.parent.name:
        raise DataError(
            f"{name}: a clip of IRMAS begins with its folder's name as a tag, as cel/[cel][cla]0001__1.wav: "
            "rename it, or give --layout folders"
        )
    return Clip(name, match["label"], match["recording"])


def _clip_by_pattern(pattern: str) -> Callable[[str], Clip]:
    expression = _compile(pattern)
    if "label" not in expression.groupindex:
        raise DataError(f"the pattern {pattern!r} has no group 'label': write one, as '(?P<label>[0-9]+)_.*'")

    def of_name(name: str) -> Clip:
        match = expression.fullmatch(PurePosixPath(name).stem)
        if match is None or not match["label"]:
            raise DataError(f"{name} without .wav does not match the pattern {pattern!r}, or gives no label")
        return Clip(name, match["label"], name)

    return of_name


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as cause:
        raise DataError(f"{pattern!r} is no regular expression ({cause})") from cause
