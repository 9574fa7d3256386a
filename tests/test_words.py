"""Docstrings, messages and names are plain technical English: some words and openings are banned."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A docstring starts with a verb or with the thing returned.
BANNED_OPENINGS = re.compile(r"(Of|That|Who|Whose|What|For|As|By|Between|In one line|Told|So)\b")
BANNED_WORDS = re.compile(
    r"\b(tells?|told|telling|anew|nobody|had better|as it was|what there is"
    r"|(go|goes|going|went|gone) on|(come|comes|came|coming) back|(take|takes|took|taken|taking) in"
    r"|(stand|stands|stood) (in|at|on|under|there|beside|where))\b",
    re.IGNORECASE,
)
BANNED_NAMES = re.compile(
    r"(^|_)(tells?|told|anew|nobody|(go|goes|going)_on|(come|comes|came)_back|takes?_in|as_it_was)(_|$)",
    re.IGNORECASE,
)
PROSE_WORDS = 3  # a string literal of fewer words is a key, a name or a format, not a message


def groups() -> list[str]:
    """Returns the packages and folders whose files are looked at together."""
    packages = [f"sample_factory/{path.parent.name}" for path in ROOT.glob("sample_factory/*/__init__.py")]
    folders = [f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if any(path.glob("**/*.py"))]
    return sorted([*packages, *folders, "sample_factory/*.py", "tests/*.py", "examples"])


def files(group: str) -> list[Path]:
    """Returns the modules of a group."""
    found = ROOT.glob(group) if group.endswith("*.py") else (ROOT / group).rglob("*.py")
    return sorted(path for path in found if path != Path(__file__))


def texts(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yields (line, kind, text) of every docstring, message, comment and name of a module.

    kind: "docstring", "message" (any other string literal that reads like prose), "comment" or "name".
    """
    source = path.read_text()
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        has_body = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if has_body and ast.get_docstring(node) is not None:
            docstrings.add(node.body[0].value)
            yield node.body[0].lineno, "docstring", ast.get_docstring(node)
    for node in ast.walk(tree):
        name = defined_name(node)
        if name is not None:
            yield node.lineno, "name", name
        is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_string and node not in docstrings and len(node.value.split()) >= PROSE_WORDS:
            yield node.lineno, "message", node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], "comment", token.string


def defined_name(node: ast.AST) -> str | None:
    """Returns the name of the class, function, parameter, variable or attribute that a node defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.id if isinstance(node, ast.Name) else node.attr
    return None


def offences(path: Path) -> Iterator[str]:
    """Yields "line: kind: the banned words" of a module."""
    for line, kind, text in texts(path):
        if kind == "name":
            found = BANNED_NAMES.search(text)
        else:
            found = BANNED_WORDS.search(text)
            if kind == "docstring":
                found = BANNED_OPENINGS.match(text) or found
        if found:
            yield f"{path.relative_to(ROOT)}:{line}: {kind}: {found[0]!r}"


@pytest.mark.parametrize("group", groups())
def test_no_banned_words_in_docstrings_messages_comments_and_names(group):
    found = [offence for path in files(group) for offence in offences(path)]
    assert not found, "\n".join(["", *found])


def pages() -> list[Path]:
    """Returns the Markdown files of the project."""
    folders = ("sample_factory", "examples", "configs", "tests", ".github")
    return sorted(
        [*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))]
    )


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_banned_words_in_pages(path):
    lines = enumerate(path.read_text().splitlines(), start=1)
    found = [
        f"{path.name}:{number}: {match[0]!r}"
        for number, line in lines
        if (match := BANNED_WORDS.search(line))
    ]
    assert not found, "\n".join(["", *found])
