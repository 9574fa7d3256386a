"""Pages of the site that are made from the code: all flags, all figures, all errors."""

import ast
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sample_factory
from sample_factory.__main__ import COMMANDS, declaration
from sample_factory.config.command import ENV_FAMILIES
from sample_factory.config.flags import FlagType, Not, default_of, section_fields
from sample_factory.config.help import as_typed, title_of
from sample_factory.config.sections import RETIRED_FLAGS, TRAINING_SECTIONS
from sample_factory.envs.env_registry import flags_of_families
from sample_factory.launch.command_line import ExplanationFlags
from sample_factory.monitoring.tensorboard_pages import CHARTS, FIRST_PAGE, LEGEND

PACKAGE = Path(sample_factory.__file__).parent
TYPES = {bool: "bool", int: "integer", float: "number", str: "text", object: "JSON"}
GROUPS = {
    "0_aux": "episodes, speed, policy lag",
    "len": "range of the lengths of episodes",
    "train": "the learner",
    "eval": "evaluations during training",
    "stats": "time and memory of the processes",
    "health": "faults that were handled",
    "zz_pbt": "population-based training",
    "zz_selfplay": "self-play",
}
VALUE = "…"  # stands for a value in a message


def all_pages() -> dict[str, str]:
    """Returns the pages by their names on the site."""
    return {"flags.md": flags_page(), "figures.md": figures_page(), "errors.md": errors_page()}


def flags_page() -> str:
    """Returns the page of all flags: of training, of env families, of the other commands."""
    parts = [
        "# All flags",
        "Every flag of this version, as the code declares it. How to write values, and which of several "
        "sources wins: [flags](config/index.md). The help of a command shows the defaults of an env: "
        "`python -m sample_factory.train --env=doom_battle --help=all`.",
    ]
    anchors: set[str] = set()
    for section in TRAINING_SECTIONS.values():
        parts += [f"## {title_of(section)}", *_flags(section, anchors)]
    families = flags_of_families()
    for name, about in ENV_FAMILIES:
        prefix = name.rstrip(string.ascii_uppercase)
        if prefix in families:
            parts += [f"## Envs `{name}`", f"{about}.", *_flags(families[prefix], anchors)]
    for name in COMMANDS:
        for section in declaration(name).sections.values():
            parts += [f"## Command `{name}`", *_flags(section, anchors)]
    parts += ["## Every command of an experiment", *_flags(ExplanationFlags, anchors)]
    parts += ["## Without effect", "Accepted with a warning, for commands of versions 1 and 2."]
    parts += [f"### `--{name}` {{#{name}}}\n\n{text}" for name, text in RETIRED_FLAGS.items()]
    return "\n\n".join([*parts, ""])


def _flags(section: type, anchors: set[str]) -> Iterator[str]:
    """Yields a heading and an explanation for each flag of a section.

    anchors: of the page so far. The first flag of a name has the name as its anchor.
    """
    for field, kind in section_fields(section):
        count = sum(anchor.partition("-")[0] == field.name for anchor in anchors)
        anchor = f"{field.name}-{count + 1}" if count else field.name
        anchors.add(anchor)
        meta = field.metadata
        name = field.name if meta["is_positional"] else f"--{field.name}"
        others = [f"`{alias}`" if alias.startswith("-") else f"`--{alias}`" for alias in meta["aliases"]]
        facts = [_type_text(kind), *_bounds(meta["bounds"])]
        default = as_typed(default_of(field))
        facts.append(f"default `{default}`" if default else "no default")
        facts += [f"also {', '.join(others)}"] * bool(others)
        lines = [" · ".join(facts), "{ .facts }", "", _sentence(meta["help"])]
        if meta["choices"]:
            lines += ["", f"One of {_listed(meta['choices'])}."]
        if meta["only_with"]:
            lines += ["", f"Only with {'; or with '.join(map(_condition, meta['only_with']))}."]
        yield f"### `{name}` {{#{anchor}}}"
        yield "\n".join(lines)


def _sentence(text: str) -> str:
    """Returns the help of a flag as Markdown: flags in it are code, and stars and brackets are no markup."""
    text = re.sub(r"([*_<\[\]])", r"\\\1", f"{text[:1].upper()}{text[1:]}.")
    return re.sub(r"(--[\w\\]+(=[\w.]*\w)?)", lambda flag: f"`{flag[0]}`".replace("\\", ""), text)


def _type_text(kind: FlagType) -> str:
    name = TYPES[kind.scalar]
    if kind.is_list:
        return f"list of {name}s" if name != "text" else "list of texts"
    return f"{name}, or `None`" if kind.is_optional else name


def _bounds(bounds: Mapping[str, float]) -> list[str]:
    texts = [f"{check.replace('_', ' ')} {bound:_}" for check, bound in bounds.items()]
    return [", ".join(texts)] if texts else []


def _condition(needed: Mapping[str, Sequence[Any]]) -> str:
    """Returns one of the sets of values in `only_with` as a phrase."""
    phrases = []
    for flag, values in needed.items():
        if flag in ("observations", "actions"):  # of the env, see effects.py
            phrases.append(f"{' or '.join(values)} {flag}")
        elif values == Not((None,)) and isinstance(values, Not):
            phrases.append(f"`--{flag}`")
        elif isinstance(values, Not):
            phrases.append(f"`--{flag}` other than {_listed(values)}")
        elif values in ((None,), ((),)):
            phrases.append(f"no `--{flag}`")
        else:
            phrases.append(" or ".join(f"`--{flag}={value}`" for value in values))
    return " and ".join(phrases)


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def figures_page() -> str:
    """Returns the page of all figures: the legend that TensorBoard shows, by group of tags."""
    parts = [
        "# All figures",
        "What TensorBoard and W&B show of a run, and `summaries.jsonl` and "
        "[`read_metrics`](training/index.md) return. A star stands for anything. "
        "*Custom Scalars* in TensorBoard begins with the charts to look at first. "
        "How to start it: [what a run shows](monitoring/index.md#tensorboard).",
        f"## {FIRST_PAGE}",
        _table(("chart", "tags"), [(title, _tags(tags)) for title, tags in CHARTS.items()]),
    ]
    for group, about in GROUPS.items():
        rows = [(_tags(tags.split(", ")), text) for tags, text in LEGEND.items() if _group(tags) == group]
        parts += [f"## `{group}`: {about}", _table(("tag", "meaning"), rows)]
    missing = {_group(tags) for tags in LEGEND} - set(GROUPS)
    assert not missing, f"say in GROUPS what the tags {missing} are about"
    return "\n\n".join([*parts, ""])


def _group(tags: str) -> str:
    return tags.partition("/")[0]


def _tags(tags: Sequence[str]) -> str:
    return ", ".join(f"`{tag.rstrip('$')}`" for tag in tags)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def errors_page() -> str:
    """Returns the page of all messages of exceptions, by the folder that raises them and by first words."""
    parts = [
        "# Errors",
        f"Every message with which this package refuses or ends something; {VALUE} stands for a value. "
        "Search for the first words of yours. What happens after a fault: [faults](launch/index.md#faults).",
    ]
    found: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts_of_path = path.relative_to(PACKAGE).parts
        folder = parts_of_path[0] if len(parts_of_path) > 1 else "commands"
        found.setdefault(folder, set()).update(_messages(path))
    for folder, messages in found.items():
        if messages:
            rows = sorted(messages, key=lambda row: row[0].lstrip(VALUE + "-=: ").lower())
            cells = [(_as_cell(message), f"`{name}`") for message, name in rows]
            parts += [f"## `{folder}`", _table(("message", "exception"), cells)]
    return "\n\n".join([*parts, ""])


def _messages(path: Path) -> Iterator[tuple[str, str]]:
    """Yields (message, class) of the exceptions that a file raises with a text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = _text(node.exc.args[0])
            if len(re.findall(r"\w+", message)) >= 3:
                yield message, ast.unparse(node.exc.func).rpartition(".")[2]


def _text(node: ast.expr) -> str:
    """Returns the text that an expression makes, with VALUE for what is not known here."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return VALUE


def _as_cell(message: str) -> str:
    """Returns a message as code in a cell of a table."""
    return "`` " + " ".join(message.split()).replace("|", "\\|") + " ``"
