"""The scripts of a report, run by node on their own."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files

import pytest

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
ARITHMETIC = ("law", "solver", "question")


def in_node(body: str, content: object):
    """What a function of this body, which sees `content`, returns where the page's scripts are loaded."""
    folder = files("shapleymix.reports") / "web"
    scripts = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in ARITHMETIC)
    read = "const content = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
    program = f"{scripts}\n{read}\nconsole.log(JSON.stringify((() => {{ {body} }})()));"
    done = subprocess.run(
        ["node", "-e", program], input=json.dumps(content), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
