"""`shapleymix-irds prepare`."""

from __future__ import annotations

from pathlib import Path

import click

from shapleymix.errors import UsageError
from shapleymix_irds.train.data.prepared.manifest import Manifest, Settings
from shapleymix_irds.train.data.prepared.pool import default_jobs
from shapleymix_irds.train.data.prepared.prepare import How, prepare
from shapleymix_irds.train.data.prepared.verify import verify
from shapleymix_irds.train.telling import say

HELP = """Tokenise a corpus once, so that training only maps it.

FOLDER is what irds_train.py takes: a file or a folder of files for each language (.txt, .jsonl, packed or not,
.parquet; .bin with .idx, .npy). With --verify it is a prepared folder, which is read through and compared with its
hashes. A command that was stopped is given again, and continues.

\b
Examples:
  shapleymix-irds prepare texts -o prepared --tokenizer tokenizer.json
  shapleymix-irds prepare --verify prepared
  python adapters/irds_train.py --corpus prepared --out run
"""


@click.command("prepare", help=HELP)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder for the prepared corpus.")
@click.option("--languages", default="", help="Languages, such as en,de; all of the folder's if not given.")
@click.option("--tokenizer", default="bytes", show_default=True, help="bytes, or a Hugging Face tokenizers JSON file.")
@click.option("--end-token", type=int, help="Token that ends a document; found in the tokenizer if not given.")
@click.option("--text-field", default="text", show_default=True, help="Field of tables that holds the text.")
@click.option("--val-share", default=0.05, show_default=True, help="Share of documents kept for validation.")
@click.option("--test-share", default=0.05, show_default=True, help="Share of documents kept for the test losses.")
@click.option("--jobs", type=click.IntRange(1), help="Processes; one for each CPU if not given.")
@click.option("--force", is_flag=True, help="Begin anew; what --out holds of a prepared corpus is overwritten.")
@click.option("--verify", "verifies", is_flag=True, help="Check the prepared corpus FOLDER; nothing is written.")
def command(
    folder: Path,
    out: Path | None,
    languages: str,
    tokenizer: str,
    end_token: int | None,
    text_field: str,
    val_share: float,
    test_share: float,
    jobs: int | None,
    force: bool,
    verifies: bool,
) -> None:
    """Prepare a corpus, or check a prepared one."""
    jobs = jobs or default_jobs()
    if verifies:
        if out is not None or force:
            raise UsageError("--verify writes nothing: --out and --force do not go with it")
        _show(verify(folder, jobs))
        say(f"{folder} is what was written")
        return
    if out is None:
        raise UsageError("Missing option '-o' / '--out'", hint=f"shapleymix-irds prepare {folder} -o {folder}-prepared")
    names = tuple(name.strip() for name in languages.split(",") if name.strip())
    settings = Settings.of(tokenizer, end_token, text_field, val_share, test_share)
    _show(prepare(folder, out, names, settings, How(jobs, force, tell=say)))
    say(f"prepared; train on it with: python adapters/irds_train.py --corpus {out}")


def _show(manifest: Manifest) -> None:
    """A line for each language on standard output."""
    width = max(map(len, ("language", *manifest.languages)))
    click.echo(f"{'language':{width}}  {'documents':>13}  {'tokens: train':>17}  {'val':>15}  {'test':>15}")
    for name, each in manifest.languages.items():
        count = each.train.documents + each.val.documents + each.test.documents
        tokens = f"{each.train.tokens:>17,}  {each.val.tokens:>15,}  {each.test.tokens:>15,}"
        click.echo(f"{name:{width}}  {count:>13,}  {tokens}")
