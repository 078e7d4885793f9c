"""What every format states: its unit, how its trainer draws, its keywords and its file."""

from __future__ import annotations

from typing import ClassVar

from shapleymix.errors import DataError, Fault, Location
from shapleymix.exporting.blends import Blend
from shapleymix.exporting.streams import Draws, Stream
from shapleymix.files import Json


class Format:
    """A form in which a trainer takes a mixture.

    Attributes
    ----------
    name, title : str
        As it is asked for, and what takes it.
    draws : Draws
        How the trainer draws.
    placed : bool
        Whether it holds paths, and so needs them.
    splits : bool
        Whether it has a place for validation and tests.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    draws: ClassVar[Draws]
    placed: ClassVar[bool] = True
    splits: ClassVar[bool] = False

    def config(self, blend: Blend) -> dict[str, Json]:
        """What the package takes from Python: keywords, or a document."""
        raise NotImplementedError

    def text(self, blend: Blend) -> str:
        """The file that the trainer reads."""
        raise NotImplementedError

    def problems(self, stream: Stream) -> list[str]:
        """Why a stream cannot be written in this form: what is wrong with its paths or its name."""
        return []

    def warnings(self, blend: Blend) -> list[str]:
        """What the trainer makes of this blend that is not what was asked for."""
        return []

    def notes(self, blend: Blend) -> list[str]:
        """What else its user should know."""
        return []

    def check(self, blend: Blend, origin: str) -> None:
        """Raise a DataError that names everything that cannot be written, in the file that the paths are from."""
        streams = [*blend.streams, *(stream for part in blend.splits.values() for stream in part)]
        faults = [
            Fault(told, Location(file=origin), stream.name) for stream in streams for told in self.problems(stream)
        ]
        if faults:
            raise DataError.of(faults, origin)
