"""The reference of the library, made from its public names: signatures, and what their docstrings say."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

from reference_commands import cell, paragraphs

import shapleymix as sm
from shapleymix.records import Record

WIDTH, NO_BREAK = 100, "\0"
SHARED = "What every result has"
MODULES: dict[str, str] = vars(sm)["_MODULE"]
COLUMNS = {"Parameters": "parameter", "Attributes": "attribute"}


def reference() -> str:
    """The page."""
    wings = dict(re.findall(r"^ {2}(\w+) {2,}(\S.*)$", sm.__doc__ or "", flags=re.M))
    named = sorted(MODULES, key=lambda name: ([*wings].index(wing_of(name)), inspect.isclass(getattr(sm, name)), name))
    found = [(wing, [*names]) for wing, names in groupby(named, key=wing_of)]
    lines = ["# Every name of the library", "", "Made from the library itself by `make reference`; a test compares the"]
    lines[-1] += " two. Names are used as `import shapleymix as sm`, `sm.fit(...)`."
    lines += ["", "| from | names |", "|---|---|"]
    lines += [f"| {cell(wings[wing])} | {', '.join(map(_link, names))} |" for wing, names in found]
    lines += ["", f"Results are [saved, loaded and shown alike](#{_anchor(SHARED)}).", ""]
    parts = [part for wing, names in found for part in (f"## shapleymix.{wing}\n", *map(_named, names))]
    return "\n".join([*lines, *parts, f"## {SHARED}\n", *_members(Record)])


def wing_of(name: str) -> str:
    """The part of the library that a name comes from."""
    return MODULES[name].split(".")[1]


def heading(name: str) -> str:
    """What a name stands under: GitHub's addresses know no case, so that `Fit` and `fit` need a word between them."""
    return f"class {name}" if inspect.isclass(getattr(sm, name)) else name


def _link(name: str) -> str:
    return f"[`{name}`](#{_anchor(heading(name))})"


def _anchor(text: str) -> str:
    return text.lower().replace(" ", "-")


def _named(name: str) -> str:
    value = getattr(sm, name)
    if name == "LAWS":
        laws = ", ".join(f"`{law}`" for law in value)
        return f"### LAWS\n\nThe laws by their names, each a class: {laws}.\n"
    return "\n".join([f"### {heading(name)}\n", *_body(value)])


def _body(value: Callable[..., object]) -> list[str]:
    """A signature where it is called, the text, the tables, and what a class has."""
    text, sections = parsed(inspect.getdoc(value) or "")
    lines = [] if inspect.isclass(value) else ["```python", signature(value), "```", ""]
    lines += paragraphs(text)
    for title, entries in sections.items():
        rows = [f"| {names} | {cell(kind)} | {cell(said)} |" for names, kind, said in map(_row, entries)]
        if title in COLUMNS:
            lines += [f"| {COLUMNS[title]} | | |", "|---|---|---|", *rows, ""]
        else:
            lines += [f"{title} {_kinds(title, head)}: {cell(said)}\n" for head, said in entries]
    return [*lines, *(_members(value) if inspect.isclass(value) else ())]


def _kinds(title: str, head: str) -> str:
    """The names of errors as code; what is returned as it is described."""
    return ", ".join(f"`{one}`" for one in head.split(", ")) if title == "Raises" else cell(head)


def _row(entry: tuple[str, str]) -> tuple[str, str, str]:
    """The names of an entry, their type, and what is said of them."""
    names, _, kind = entry[0].partition(" : ")
    return ", ".join(f"`{name}`" for name in names.split(", ")), kind, entry[1]


def parsed(doc: str) -> tuple[str, dict[str, list[tuple[str, str]]]]:
    """A docstring: its text, and the entries of each section as they are headed, with what stands below."""
    lines = doc.split("\n")
    heads = [place for place, line in enumerate(lines[1:]) if re.fullmatch(r"-{3,}", line)]
    sections = {}
    for place, end in pairwise([*heads, len(lines) + 1]):
        body = "\n".join(lines[place + 2 : end - 1 if end > len(lines) else end])
        entries = re.findall(r"^(\S.*)\n((?:(?: .*)?(?:\n|\Z))*)", body, flags=re.M)
        sections[lines[place]] = [(head, " ".join(said.split())) for head, said in entries]
    return "\n".join(lines[: heads[0]] if heads else lines).strip(), sections


def signature(function: Callable[..., object], name: str = "") -> str:
    """As Python writes it, folded at the width of the page."""
    written = [*_written(inspect.signature(function))]
    returns = inspect.signature(function).return_annotation
    head, tail = f"def {name or function.__name__}(", f") -> {returns}: ..."
    whole = head + ", ".join(written) + tail
    if len(whole) <= WIDTH:
        return whole
    pieces = ", ".join(one.replace(" ", NO_BREAK) for one in written)
    folded = textwrap.fill(pieces, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4, break_long_words=False)
    return "\n".join([head, folded.replace(NO_BREAK, " "), tail])


def _written(signature: inspect.Signature) -> Iterator[str]:
    """The parameters, each with its type and default."""
    star = False
    for one in signature.parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            yield "*"
        star = star or one.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        kind = "" if one.annotation is inspect.Parameter.empty else f": {one.annotation}"
        default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
        mark = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
        yield f"{mark}{one.name}{kind}{default}"


def _members(kind: type[object]) -> list[str]:
    """What a class has besides its fields, by itself or from a base that is not every result's; nothing of an error."""
    if issubclass(kind, Exception):
        return []
    bases = [base for base in kind.__mro__ if base.__module__.startswith("shapleymix.")]
    ours = [base for base in bases if kind is Record or base not in Record.__mro__]
    found = {name: member for base in reversed(ours) for name, member in vars(base).items() if not name.startswith("_")}
    rows = [row for name, member in found.items() if (row := _member(name, member))]
    return ["| | |", "|---|---|", *rows, ""] if rows else []


def _member(name: str, member: object) -> str | None:
    """A method with its call, or a property; nothing for a field, or for what has no words."""
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    said = (inspect.getdoc(function) or "").split("\n\n")[0] if inspect.isfunction(function) else ""
    if not said or not inspect.isfunction(function):
        return None
    names = [str(one) for one in inspect.signature(function).parameters if one not in ("self", "cls")]
    call = "" if isinstance(member, property) else f"({', '.join(names)})"
    return f"| `{name}{call}` | {cell(said)} |"
