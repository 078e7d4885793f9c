"""From settings to a corpus: one that was prepared, or text, which one rank reads for all.

What a start reads of a prepared corpus does not grow with its tokens. Text, and tokens that nobody has hashed yet, are
read whole at each start: by this process, or, where there are several, by rank 0 into a prepared folder under --out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shapleymix.errors import Fault, Location, UsageError
from shapleymix_irds.distributed import World
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.data.corpus import Corpus, CorpusOptions, chosen, languages_in, open_corpus
from shapleymix_irds.train.data.pieces import READY_ENDINGS
from shapleymix_irds.train.data.prepared.folder import SETTINGS, sources_of
from shapleymix_irds.train.data.prepared.manifest import Settings, hash_of, is_prepared, read_manifest
from shapleymix_irds.train.data.prepared.mapped import open_prepared
from shapleymix_irds.train.data.prepared.prepare import prepare
from shapleymix_irds.train.data.tokens import tokenizer_for

LARGEST = 4 << 30  # bytes of files that are read at each start
SHARED = ".corpus-"  # in --out: what rank 0 has prepared for all
PAUSE = 0.1  # seconds between two looks at a rank that works for all


def names_in(folder: str) -> tuple[str, ...]:
    """The languages of a corpus, prepared or not, in its order.

    Raises
    ------
    UsageError
        If there is no such folder, or its preparation has not come to its end.
    """
    if is_prepared(folder):
        return tuple(read_manifest(folder).languages)
    _check_begun(folder)
    return tuple(languages_in(folder))


class Opened(NamedTuple):
    """A corpus; the run's settings with what it decides of them; how it was read; which of its files came as tokens."""

    corpus: Corpus
    config: TrainConfig
    settings: Settings
    ready: frozenset[bool]


def open_for(config: TrainConfig, languages: tuple[str, ...], world: World) -> Opened:
    """The corpus of a run.

    Raises
    ------
    UsageError
        If the settings are not those that it was prepared with, or it is too large to be read at each start.
    DataError
        If a file is broken, or a language is too small.
    """
    folder = Path(config.corpus)
    if config.corpus != "toy" and is_prepared(folder):
        manifest = read_manifest(folder)
        _check_agrees(config, manifest.settings)
        corpus = open_prepared(folder, manifest, languages, config.seq, validated=_validated(config))
        names = [source.file for name in languages for source in manifest.languages[name].files]
        return Opened(corpus, _settled(config, manifest.settings), manifest.settings, _ready(names))
    settings = _settings(config)
    config = _settled(config, settings)
    if config.corpus == "toy":
        return Opened(open_corpus("toy", languages, _options(config, settings)), config, settings, frozenset({False}))
    _check_begun(config.corpus)
    files = chosen(config.corpus, languages)
    _check_small(config, files)
    ready = _ready([path.name for paths in files.values() for path in paths])
    if world.size == 1:
        return Opened(open_corpus(config.corpus, languages, _options(config, settings)), config, settings, ready)
    shared = _shared_folder(config, files, settings)
    together(world, lambda: prepare(folder, shared, languages, settings))
    corpus = open_prepared(shared, read_manifest(shared), languages, config.seq, validated=_validated(config))
    return Opened(corpus, config, settings, ready)


def _ready(names: list[str]) -> frozenset[bool]:
    return frozenset(name.endswith(READY_ENDINGS) for name in names)


def document_end(opened: Opened) -> int:
    """The token that ends each document of the corpus; where tokens are on disk already it has to be given.

    Raises
    ------
    UsageError
        If it is not known, or text and tokens have each their own.
    """
    settings = opened.settings
    ends = {settings.end_token if ready else settings.tokenizer_end for ready in opened.ready}
    if None in ends:
        unknown = f"{settings.named} has none that is known"
        kind = "the corpus has tokens without their tokenizer" if True in opened.ready else unknown
        message = f"--mask-documents needs the token that ends a document; {kind}"
        raise UsageError(message, hint="give --end-token, or --no-mask-documents")
    if len(ends) > 1:
        told = f"text ends with {settings.tokenizer_end}, tokens on disk with --end-token {settings.end_token}"
        hint = "write one of both with the other's token, or give --no-mask-documents"
        raise UsageError(f"--mask-documents needs one token that ends documents; {told}", hint=hint)
    (end,) = ends
    assert end is not None
    return end


def drop_shared(config: TrainConfig, world: World) -> None:
    """Remove what rank 0 had prepared for all, once the run is done."""
    world.wait()
    if world.main:
        for path in Path(config.out).glob(f"{SHARED}{'[0-9a-f]' * 12}"):
            shutil.rmtree(path, ignore_errors=True)


def together(world: World, work: Callable[[], object]) -> None:
    """Let rank 0 do something long, while all ranks keep in touch, so that none gives up waiting.

    Raises
    ------
    UsageError
        On the other ranks, if it fails; rank 0 raises the fault itself.
    """
    faults: list[BaseException] = []

    def worked() -> None:
        try:
            work()
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=worked, daemon=True)
    if world.main:
        thread.start()
    while world.any(thread.is_alive()):
        time.sleep(PAUSE)
    if world.any(bool(faults)):
        raise faults[0] if faults else UsageError("rank 0 could not read the corpus", hint="see what it says")


def _settings(config: TrainConfig) -> Settings:
    """How text is read, with what stands for settings that are not given."""
    shares = (0.05 if share is None else share for share in (config.val_share, config.test_share))
    return Settings.of(config.tokenizer or "bytes", config.end_token, config.text_field or "text", *shares)


def _settled(config: TrainConfig, settings: Settings) -> TrainConfig:
    """The configuration with the settings of the corpus; a tokenizer keeps the name by which it was given."""
    return dataclasses.replace(
        config,
        tokenizer=config.tokenizer or settings.tokenizer,
        end_token=settings.end_token,
        text_field=settings.text_field,
        val_share=settings.val_share,
        test_share=settings.test_share,
    )


def _options(config: TrainConfig, settings: Settings) -> CorpusOptions:
    return CorpusOptions(
        tokenizer=tokenizer_for(settings.tokenizer, settings.end_token),
        seq=config.seq,
        val_share=settings.val_share,
        test_share=settings.test_share,
        field=settings.text_field,
        end=settings.end_token,
        toy_overlap=config.toy_overlap,
        toy_size=config.toy_characters,
        validated=_validated(config),
    )


def _validated(config: TrainConfig) -> bool:
    """Whether the run needs validation text."""
    return config.irds and not config.irds_fresh


def _check_agrees(config: TrainConfig, settings: Settings) -> None:
    """Refuse settings that are given and are not those of the prepared corpus."""
    given = {name: getattr(config, name) for name in ("end_token", "val_share", "test_share")}
    given["text_field"] = config.text_field or None
    told = [
        f"{name} was {getattr(settings, name)!r}, is {value!r}"
        for name, value in given.items()
        if value is not None and value != getattr(settings, name)
    ]
    if config.tokenizer and hash_of(config.tokenizer) != settings.tokenizer_sha256:
        told.append(f"tokenizer was {settings.tokenizer!r}, {config.tokenizer!r} is another")
    if told:
        place, hint = Location(file=config.corpus), "leave them out, or prepare the corpus with them in another folder"
        raise UsageError.of([Fault(f"was prepared otherwise: {each}", place, hint=hint) for each in told], "the corpus")


def _check_begun(folder: str) -> None:
    """Refuse a prepared folder that is not finished."""
    if (Path(folder) / SETTINGS).is_file():
        hint = "give the command that began it again: shapleymix-irds prepare"
        raise UsageError("is not prepared to its end", location=Location(file=folder), hint=hint)


def _check_small(config: TrainConfig, files: dict[str, list[Path]]) -> None:
    """Refuse to read again and again what is better read once."""
    size = sum(path.stat().st_size for paths in files.values() for path in paths)
    if size <= LARGEST:
        return
    message = f"holds {size / 1e9:.3g} GB, more than the {LARGEST / 1e9:.3g} GB that are read anew at each start"
    hint = f"once: {_command(config)}; then train on what it made (--corpus)"
    raise UsageError(message, location=Location(file=config.corpus), hint=hint)


def _command(config: TrainConfig) -> str:
    """What prepares the corpus of a run."""
    asked = {
        "--languages": (config.languages, ""),
        "--tokenizer": (config.tokenizer, "bytes"),
        "--end-token": (config.end_token, None),
        "--text-field": (config.text_field, "text"),
        "--val-share": (config.val_share, 0.05),
        "--test-share": (config.test_share, 0.05),
    }
    words = [word for flag, (value, usual) in asked.items() if value != usual for word in (flag, str(value))]
    out = f"{config.corpus.rstrip('/')}-prepared"
    return shlex.join(["shapleymix-irds", "prepare", config.corpus, "-o", out, *words])


def _shared_folder(config: TrainConfig, files: dict[str, list[Path]], settings: Settings) -> Path:
    """A folder under --out, called by what is prepared there: another corpus has another one."""
    root = Path(config.corpus)
    sources = {name: sources_of(root, paths) for name, paths in files.items()}
    key = [settings.to_document(), {name: [each.to_document() for each in one] for name, one in sources.items()}]
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=6).hexdigest()
    return Path(config.out) / f"{SHARED}{digest}"
