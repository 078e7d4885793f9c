"""torchtitan 0.3: data sources of packed sequences, for the Python config.

Each names a dataset that is registered in `torchtitan.hf_datasets.text_datasets.DATASETS`, in lower case.
"""

from __future__ import annotations

from shapleymix.exporting.blends import Blend
from shapleymix.exporting.formats import Format
from shapleymix.exporting.notation import commented, described, python_text
from shapleymix.exporting.streams import Draws, Stream
from shapleymix.files import Json

_MODULE = '''
from torchtitan.hf_datasets.text_datasets import HFDataSource, InterleavedHuggingFaceTextDataLoader

# torchtitan knows each dataset by its name in lower case: register it in text_datasets.DATASETS
SOURCES = {sources}


def dataloader(**options):
    """The data loader's config for `Trainer.Config(dataloader=...)`; the options are those of the loader."""
    return InterleavedHuggingFaceTextDataLoader.Config(
        sources=[HFDataSource(**source) for source in SOURCES], seed={seed}, **options
    )
'''


class Torchtitan(Format):
    """A Python module with `dataloader(**options)`, and the fields of each `HFDataSource`."""

    name = "torchtitan"
    title = "torchtitan 0.3 (HFDataSource)"
    draws = Draws("packed sequences")

    def config(self, blend: Blend) -> dict[str, Json]:
        """`sources`, each the fields of an `HFDataSource`, and the seed of the draws."""
        return {"sources": list(map(_source, blend.streams)), "seed": blend.seed}

    def text(self, blend: Blend) -> str:
        """A module whose `dataloader` is the config of the loader."""
        body = _MODULE.format(sources=python_text(list(map(_source, blend.streams))), seed=blend.seed)
        return commented(described(blend, self.draws.unit)) + body


def _source(stream: Stream) -> dict[str, Json]:
    """Sources begin again when they end (infinite)."""
    return {"dataset": stream.dataset, "dataset_path": stream.paths[0], "weight": stream.weight, "infinite": True}
