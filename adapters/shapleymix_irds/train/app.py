"""The command line: settings from flags and CONFIG.toml, then one run, with plain errors and exit codes."""

from __future__ import annotations

from typing import Any

import click

from shapleymix.errors import UsageError
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.settings import fields, flag, types
from shapleymix_irds.train.settings_file import read_toml
from shapleymix_irds.train.telling import Told, keep_stderr_open, told

EXAMPLES = """Train one language model on one mixture; write rows of a run log and a Shapley value matrix.

\b
Examples:
  python adapters/irds_train.py --out run
  python adapters/irds_train.py --corpus texts --languages en,de,fr --tokens 1M --out run-uniform
  python adapters/irds_train.py --corpus texts --mixture en=.7,de=.3 --no-irds --out run-70-30
  torchrun --standalone --nproc-per-node=8 adapters/irds_train.py --config CONFIG.toml

The same command continues a run that was killed.
"""


def command() -> click.Command:
    """The command with a flag for each setting."""
    config = click.Option(["--config"], metavar="CONFIG.toml", help="File of settings; flags win over it.")
    return click.Command("irds_train.py", params=[config, *map(_option, fields())], callback=_run, help=EXAMPLES)


def _option(field: Any) -> click.Option:
    kind, name = types()[field.name], field.name
    chosen = f"{flag(name)}/--no-{name.replace('_', '-')}" if kind is bool else flag(name)
    default = {True: "on", False: "off"}.get(field.default, field.default) if kind is bool else field.default
    text = field.metadata["help"] + ("" if default in (None, "") else f"  [{default}]")
    return click.Option([chosen, name], type=kind, default=None, help=text)


def _run(config: str | None, **flags: Any) -> None:
    given = {name: value for name, value in flags.items() if value is not None}
    settings = TrainConfig(**{**(read_toml(config) if config else {}), **given})
    try:
        from shapleymix_irds.train.launch import launch
    except ImportError as error:
        raise UsageError(f"training needs PyTorch: {error}", hint="pip install torch") from error
    launch(settings)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code: 0 done, 1 bad data, 2 usage, 128 + signal after a checkpoint."""
    keep_stderr_open()
    try:
        with told():
            command().main(arguments, standalone_mode=False)
    except Told as end:
        return end.exit_code
    return 0
