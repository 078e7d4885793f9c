"""What every format states: its unit, how its trainer draws, its keywords and its file."""

from __future__ import annotations

from typing import ClassVar

from shapleymix.errors import DataError, Fault, Location
from shapleymix.exporting.blends import Blend
from shapleymix.exporting.notation import commented, described, python_text
from shapleymix.exporting.streams import Draws, Stream
from shapleymix.files import Json

_MODULE = '''
from {package} import {function}

{weights} = {known}
PATHS = {paths}


def mixed(datasets):
    """One stream of the languages' datasets, which are given by name, such as {{"en": {loader}(...)}}."""
    return {function}(
        [datasets[name] for name in {weights}],
        {keyword}=list({weights}.values()),
{options}    )
'''


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


class Combining(Format):
    """A function of Python that makes one stream of all languages' datasets; the file is a module that calls it.

    Attributes
    ----------
    package, function, loader : str
        The function's package and name, and what makes a dataset; the weights come first in `config`.
    """

    package: ClassVar[str]
    function: ClassVar[str]
    loader: ClassVar[str]
    placed = False

    def text(self, blend: Blend) -> str:
        """A module whose `mixed` makes one stream of all languages' datasets."""
        (keyword, _), *options = self.config(blend).items()
        known = {stream.name: stream.weight for stream in blend.streams}
        paths = {one.name: [*one.paths] if self.draws.together else one.paths[0] for one in blend.streams if one.paths}
        return commented(described(blend, self.draws.unit)) + _MODULE.format(
            package=self.package,
            function=self.function,
            loader=self.loader,
            keyword=keyword,
            weights=keyword.upper(),
            known=python_text(known),
            paths=python_text(paths),
            options="".join(f"        {name}={value!r},\n" for name, value in options),
        )
