"""A page's script, run without a browser."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from shapleymix_view import Page

NODE = shutil.which("node")
LANGUAGES = Path(__file__).parents[2] / "fixtures" / "multilingual5_languages.csv"
DOCUMENT = """
class Element {
  dataset = {}; children = []; classList = { toggle() {} };
  append() {} replaceChildren() {} setAttribute() {} addEventListener() {}
}
globalThis.document = {
  body: new Element(),
  getElementById: (id) => (id === "page-data" ? { textContent: DATA } : id === "others" ? null : new Element()),
  createElement: () => new Element(),
  querySelectorAll: () => [],
  addEventListener() {},
};
[globalThis.location, globalThis.history] = [{ hash: "", href: "" }, { replaceState() {} }];
globalThis.addEventListener = globalThis.setTimeout = () => 0;
"""
"""As little of a browser as the page's script needs."""


def data_of(page: Page) -> Any:
    """What the page's script is given."""
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page.html, re.DOTALL)
    return json.loads(found[1])


def answers(page: Page, moves: list[Any]) -> list[dict[str, Any]]:
    """What the page answers after each change of what is asked, all from its start, or to a fragment of its address."""
    body = """
    const found = MOVES.map((move) => {
      location.hash = typeof move === "string" ? move : fragmentOf({ ...data.start, ...move });
      begin();
      return { ...documentOf(), fragment: fragmentOf(asked) };
    });
    console.log(JSON.stringify(found));
    """
    data = f"const DATA = {json.dumps(json.dumps(data_of(page)))};\nconst MOVES = {json.dumps(moves)};\n"
    return run_node(data + DOCUMENT + script_of("solver.js") + script_of("page.js") + body)


def optima_of(goals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the page's solver answers to goals, each with its weights w, kl and worst."""
    body = "console.log(JSON.stringify(GOALS.map((goal) => solve(goal, goal.w, goal))));"
    return run_node(f"const GOALS = {json.dumps(goals)};\n{script_of('solver.js')}{body}")


def script_of(name: str) -> str:
    """A script of the page."""
    return (files("shapleymix_view") / "web" / name).read_text(encoding="utf-8")


def run_node(code: str) -> Any:
    """What a program prints."""
    if NODE is None:
        pytest.skip("needs node")
    done = subprocess.run([NODE, "-"], input=code, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
