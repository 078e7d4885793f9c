"""OLMo-core: target ratios of tokens, and how often a source may repeat.

A source that has fewer tokens than its ratio of the run fails unless its repetitions are allowed; one with a ratio of
zero is drawn from all the same.
"""

from __future__ import annotations

import math

from shapleymix.exporting.blends import Blend
from shapleymix.exporting.formats import Format
from shapleymix.exporting.notation import commented, described, yaml_text
from shapleymix.exporting.streams import Draws, Stream, listed
from shapleymix.fields import ROUNDING
from shapleymix.files import Json


class OlmoCore(Format):
    """The document of a `SourceMixtureList`."""

    name = "olmo-core"
    title = "OLMo-core (SourceMixtureList)"
    draws = Draws("tokens", together=True)

    def config(self, blend: Blend) -> dict[str, Json]:
        """The fields of a `SourceMixtureList`."""
        return {"sources": [_source(stream, blend) for stream in blend.streams]}

    def text(self, blend: Blend) -> str:
        """YAML."""
        size = (
            [] if math.isnan(blend.D) else [f"build it with requested_tokens={round(blend.D)}, or what is near it and"]
        )
        rounding = "a multiple of global_batch_size: what rounding up to whole batches adds is dealt out evenly"
        about = [*described(blend, self.draws.unit), *size, rounding if size else f"choose requested_tokens {rounding}"]
        return commented(about) + yaml_text(self.config(blend))

    def warnings(self, blend: Blend) -> list[str]:
        """Sources whose repetitions are not known."""
        unknown = [stream.name for stream in blend.streams if allowed(stream, blend) is None]
        if not unknown:
            return []
        return [
            f"max_repetition_ratio is not set of {listed(unknown)}, whose tokens or D are not known: OLMo-core fails "
            "where they do not fill their ratio"
        ]


def _source(stream: Stream, blend: Blend) -> dict[str, Json]:
    limit = allowed(stream, blend)
    known = {"source_name": stream.name, "target_ratio": stream.weight, "paths": list(stream.paths)}
    return known if limit is None else {**known, "max_repetition_ratio": limit}


def allowed(stream: Stream, blend: Blend) -> float | None:
    """How often a source has to be seen, rounded up to hundredths; None where that is not known.

    No rounding takes it above what the mixture allows, unless that is broken already.
    """
    often = stream.ratio * blend.D / stream.available
    if math.isnan(often):
        return None
    most = float(blend.limits.max_epochs[blend.sources.index(stream.source)])
    needed = max(1.0, math.ceil(100 * often) / 100)
    return needed if often > most * (1 + ROUNDING) else min(needed, max(1.0, most))
