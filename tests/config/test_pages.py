"""Pages are short, their commands parse, and what they name exists; tests/test_site.py checks the links."""

import ast
import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import RETIRED_FLAGS, TRAINING_SECTIONS
from sample_factory.envs.env_registry import resolve_family
from sample_factory.families.doom import doom_family
from sample_factory.launch.command_line import parse
from tests.config.declared_commands import COMMAND_OF

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "sample_factory"
PAGES = [path for top in (".", "configs", ".github") for path in sorted((ROOT / top).glob("*.md"))]
PAGES += sorted(PACKAGE.rglob("*.md"))
MIGRATING = PACKAGE / "config" / "MIGRATING.md"
COMMAND = re.compile(r"python -m sample_factory[. ]([\w.]+) ([^`\n#]+)")


def tables(text: str) -> Iterator[list[list[str]]]:
    """Yields the tables of a page, each as its rows of cells."""
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        yield [re.split(r"(?<!\\)\|", row)[1:-1] for row in block.splitlines()]


def commands() -> list[tuple[str, str]]:
    """Returns (module, flags) of the commands that can be run as they are, each once."""
    found = [pair for page in PAGES for pair in COMMAND.findall(page.read_text().replace("\\\n", ""))]
    assert found
    return [
        (module, flags.strip())
        for module, flags in dict.fromkeys(found)
        if "..." not in flags and "--help" not in flags and not module.startswith("algorithms.")
    ]


def defined_names(folder: Path) -> set[str]:
    """Returns the names of all functions and classes, and Class.method for methods."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
                names |= {f"{node.name}.{method}" for method in methods}
    return names


def words(text: str) -> int:
    """Returns the number of words of a page outside of its blocks of code and comments."""
    unread = r"^( *)```.*?^\1```|<!--.*?-->"
    return len(re.sub(unread, "", text, flags=re.MULTILINE | re.DOTALL).split())


def test_pages_stay_short_enough_to_be_read():
    assert sum(words(page.read_text()) for page in PAGES) <= 26_000
    assert len((ROOT / "README.md").read_text().split()) <= 1_200


@pytest.mark.parametrize("module, flags", commands())
def test_every_command_of_the_pages_is_parsed(module, flags, tmp_path):
    command = COMMAND_OF[module]
    argv = shlex.split(flags)
    if not command.experiment:
        parse(command, argv)
        return
    argv.append(f"--train_dir={tmp_path}")
    experiment = re.search(r"--experiment=(\S+)", flags)
    if command.experiment == "saved" and experiment is None:
        command = command._replace(experiment="new")
    elif command.experiment == "saved":
        (tmp_path / experiment[1]).mkdir()
        (tmp_path / experiment[1] / "cfg.json").write_text('{"env": "doom_duel"}')
    assert parse(command, argv).unknown == {}


def table(*column_names: str) -> list[list[str]]:
    """Returns the rows of cells, without markup, of the table with these columns on the page for users of
    versions 1 and 2."""
    text = MIGRATING.read_text().replace("`", "")
    found = [[[cell.strip() for cell in row] for row in rows] for rows in tables(text)]
    return next(rows[2:] for rows in found if rows[0] == list(column_names))


def flags() -> list[dataclasses.Field]:
    return [field for section in TRAINING_SECTIONS.values() for field in dataclasses.fields(section)]


def test_the_page_for_older_versions_names_all_aliases():
    aliases = {f"--{alias}": f"--{field.name}" for field in flags() for alias in field.metadata["aliases"]}
    assert dict(table("name in version 2", "name here")) == aliases


def test_the_page_for_older_versions_names_all_flags_without_effect():
    text = MIGRATING.read_text()
    assert [name for name in RETIRED_FLAGS if f"`--{name}`" not in text] == []


def test_the_page_for_older_versions_has_the_present_defaults(monkeypatch):
    monkeypatch.setattr(doom_family, "num_usable_cores", lambda: 2)
    doom = {
        f"{name} ({label})": str(value)
        for label, env in (("Doom", "doom_basic"), ("doom_deadly_corridor", "doom_deadly_corridor"))
        for name, value in doom_family.doom_defaults(env).items()
    }
    shown = {flag: here for flag, _, _, here, _ in table("flag", "1", "2", "here", "reason")}
    general = {field.name: str(field.default) for field in flags()}
    assert shown == {name: value for name, value in (general | doom).items() if name in shown}


def test_flags_that_this_page_calls_unknown_are_refused(tmp_path):
    names = re.findall(r"--\w+", " ".join(cell for cell, _ in table("unknown flag", "instead")))
    for name in names:
        with pytest.raises(ConfigError, match="unknown flag"):
            parse_config(["--env=doom_basic", f"--train_dir={tmp_path}", name], resolve_family)


def test_how_it_works_names_functions_that_exist():
    page = (PACKAGE / "README.md").read_text()
    rows = [row for rows in tables(page) for row in rows if "functions in control" in rows[0][1]]
    calls = [line for line in page.splitlines() if "→" in line and not line.startswith("|")]
    texts = [functions for _, functions, *_ in rows] + calls
    named = {name for text in texts for name in re.findall(r"`([\w.]+)`", text)}
    variables = {"policy_ids", "__init__"}
    assert len(named) > 60 and named - variables - defined_names(PACKAGE) == set()
