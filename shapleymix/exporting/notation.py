"""Values as YAML and Python that read back the same, and the lines that say what a blend is.

YAML has traps: `no` is a truth value, `1e-05` a text, `12:30` a number. Values that are texts are quoted here, and so
are such keys; every number has its point.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping

from shapleymix.errors import printable
from shapleymix.exporting.blends import Blend
from shapleymix.files import Json
from shapleymix.tables.sizes import format_size

_PLAIN = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
"""What YAML takes for truth values, or for nothing."""


def yaml_text(value: Mapping[str, Json]) -> str:
    """A mapping as YAML in blocks."""
    return "\n".join(_yaml_lines(value)) + "\n"


def _yaml_lines(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _yaml_entry(f"{_yaml_key(name)}:", inner)
    elif isinstance(value, (list, tuple)) and value:
        for inner in value:
            yield from _yaml_item(inner)
    else:
        yield _yaml_scalar(value)


def _yaml_entry(head: str, inner: Json) -> Iterator[str]:
    """A key with its value behind it, or below it where that has parts."""
    if not isinstance(inner, (Mapping, list, tuple)) or not inner:
        yield f"{head} {_yaml_scalar(inner)}"
        return
    yield head
    yield from (f"  {line}" for line in _yaml_lines(inner))


def _yaml_item(inner: Json) -> Iterator[str]:
    """A list's item: its first line behind the dash."""
    lines = _yaml_lines(inner)
    yield f"- {next(lines)}"
    yield from (f"  {line}" for line in lines)


def _yaml_key(name: str) -> str:
    """A key as it is where no reader of YAML can take it for anything but a text."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else _yaml_scalar(name)


def _yaml_scalar(value: Json) -> str:
    if isinstance(value, float):
        return number(value)
    return json.dumps(value, ensure_ascii=False)


def number(value: float) -> str:
    """A double in its shortest form, with a point: `1.0e-05`."""
    digits, e, exponent = repr(value).partition("e")
    return repr(value) if not e or "." in digits else f"{digits}.0e{exponent}"


def python_text(value: Json, indent: str = "") -> str:
    """A literal of Python, with a line a part where it has parts that have parts."""
    if isinstance(value, Mapping):
        parts = [f"{name!r}: {python_text(inner, indent + '    ')}" for name, inner in value.items()]
        return _python_block("{", parts, "}", indent)
    if isinstance(value, (list, tuple)):
        flat = not any(isinstance(inner, (Mapping, list, tuple)) for inner in value) and len(value) < 4
        if flat:
            return f"[{', '.join(map(python_text, value))}]"
        return _python_block("[", [python_text(inner, indent + "    ") for inner in value], "]", indent)
    return repr(value)


def _python_block(start: str, parts: list[str], end: str, indent: str) -> str:
    if not parts:
        return start + end
    body = "".join(f"{indent}    {part},\n" for part in parts)
    return f"{start}\n{body}{indent}{end}"


def described(blend: Blend, unit: str) -> list[str]:
    """What a blend is: its unit, its tokens, and for each language its share and how often it is seen."""
    size = "" if math.isnan(blend.D) else f" of {format_size(blend.D)}"
    head = f"written by shapleymix export: weights are of {unit}, shares of the run's tokens{size}"
    width = max(map(len, blend.sources))
    rows = zip(blend.sources, blend.p.tolist(), blend.epochs.tolist(), strict=True)
    return [head, *(f"{name:<{width}}  {share:9.4%}{_often(epochs)}" for name, share, epochs in rows)]


def _often(epochs: float) -> str:
    return "" if math.isnan(epochs) else f"  {epochs:.3g} epochs"


def commented(lines: list[str]) -> str:
    """Lines as comments of YAML and Python, which none can leave."""
    return "".join(f"# {printable(line)}\n" for line in lines)
