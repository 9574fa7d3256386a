"""An extension of griffe, which reads the code for mkdocstrings: turns docstrings into Markdown.

Parameters and fields are described there by paragraphs of the form `name: text`, each of which becomes an
item of a list.
"""

import re
from typing import Any

import griffe

DESCRIBED = re.compile(r"(\w+(?:\([^)\n]*\))?(?:, \w+)*): (?=\S)")


class ProjectDocstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Returns a docstring with its descriptions of parameters as lists.

    A description begins after an empty line or after another one, and ends at an empty line, or at the first
    line that is not indented.
    """
    lines = [""]
    is_item = False
    for line in docstring.split("\n"):
        described = DESCRIBED.match(line)
        if described and (is_item or not lines[-1]):
            if not is_item:
                lines.append("")
            line = f"- **`{described[1]}`**: {line[described.end() :]}"
            is_item = True
        elif not line or (is_item and not line.startswith(" ")):
            is_item = False
        lines.append(line)
    return "\n".join(lines[1:])
