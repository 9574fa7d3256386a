"""Builds the site of the documentation: python .github/site/build.py --out=site

The pages are the Markdown files of the repository where they stand, under shorter names and with their links
turned, and pages that are generated from the code. A broken link, and a page that the navigation lacks, is an
error. Nothing of the site is loaded from another server, except for the script that draws diagrams, unless
--mermaid names a copy of it.
"""

import argparse
import ast
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import generated_pages
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

SITE = Path(__file__).parent
ROOT = SITE.parent.parent
# Names on the site that do not follow from the rule of `page_name`.
RENAMED = {
    "sample_factory/README.md": "how_it_works.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/CHANGELOG.md": "changelog.md",
}
FOLDERS = {"sample_factory/": "", "configs/": "recipes/", "examples/media/": "media/"}
OWN_FILES = ("interface.md", "style.css", "search.js")
PICTURES = {".png", ".webp", ".svg"}
FENCED = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?\[[^\]]*\])\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)")
COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
CODE_FENCE = "`" * 10  # longer than any in the files that are shown


def tracked_files() -> list[str]:
    """Returns the paths of all files of the repository, relative to its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted(path for path in listed if path and (ROOT / path).exists())


def page_name(path: str) -> str:
    """Returns the name on the site of a page or a picture of the repository."""
    if path in RENAMED:
        return RENAMED[path]
    for folder, short in FOLDERS.items():
        if path.startswith(folder):
            path = short + path.removeprefix(folder)
    parent, _, name = path.rpartition("/")
    name = "index.md" if name == "README.md" else name.lower()
    return f"{parent}/{name}" if parent else name


class Pages:
    """Writes the pages of the site into a folder, with the files and folders that they link to."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._files = tracked_files()
        self._linked: set[str] = set()  # files and folders that are no pages

    def write_all(self) -> None:
        for path in self._files:
            if path.endswith(".md") and not path.startswith((".github/site/", "tests/")):
                self._write(page_name(path), self._turned(path, (ROOT / path).read_text()))
        for path in self._files:
            if Path(path).suffix in PICTURES:
                self._write(page_name(path), (ROOT / path).read_bytes())
        self._write("source/examples/notebook.md", notebook_page("examples/notebook.ipynb"))
        for path in sorted(self._linked):
            self._write(
                f"source/{path}.md", self._folder_page(path) if self._is_folder(path) else code_page(path)
            )
        for name in OWN_FILES:
            self._write(name, (SITE / name).read_bytes())
        for name, text in generated_pages.all_pages().items():
            self._write(name, text)

    def _write(self, name: str, contents: str | bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)

    def _turned(self, path: str, text: str) -> str:
        """Returns a page with the links of the site, in the form of Markdown that MkDocs reads.

        On GitHub, the text of a numbered list is indented by three columns; here it has to be four.
        """

        def turn(part: str) -> str:
            part = LINK.sub(lambda link: self._link(path, *link.groups()), COMMENT.sub("", part))
            return re.sub(r"^ {3}(?=\S)", "    ", part, flags=re.MULTILINE)

        return outside_of_code(text, turn)

    def _link(self, path: str, label: str, target: str, anchor: str | None) -> str:
        """Returns a link of a page, given by its parts."""
        if not target:
            return f"{label}({anchor})"
        found = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if found.endswith(".md") or Path(found).suffix in PICTURES:
            name = page_name(found)
        elif found == "examples/notebook.ipynb":
            name = "source/examples/notebook.md"
        else:
            self._linked.add(found)
            name = f"source/{found}.md"
        turned = os.path.relpath(name, os.path.dirname(page_name(path)) or ".")
        return f"{label}({turned}{anchor or ''})"

    def _is_folder(self, path: str) -> bool:
        return (ROOT / path).is_dir()

    def _folder_page(self, folder: str) -> str:
        """Returns a page with a line for each Python file of a folder."""
        rows = []
        for path in self._files:
            if path.startswith(f"{folder}/") and path.endswith(".py") and (ROOT / path).stat().st_size:
                doc = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
                rows.append(f"| `{path.removeprefix(f'{folder}/')}` | {doc.partition(chr(10))[0]} |")
        return "\n".join([f"{NOT_SEARCHED}# {folder}/", "", "| file | content |", "|---|---|", *rows, ""])


NOT_SEARCHED = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n"


def outside_of_code(text: str, turn: Callable[[str], str]) -> str:
    """Returns a text whose parts outside of ``` fences are replaced by what `turn` returns for them."""
    parts = []
    end = 0
    for fence in FENCED.finditer(text):
        parts += [turn(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, turn(text[end:])])


def code_page(path: str) -> str:
    """Returns a page that shows a file of the repository."""
    language = {".py": "python", ".json": "json"}.get(Path(path).suffix, "text")
    return f"{NOT_SEARCHED}# {path}\n\n{CODE_FENCE}{language}\n{(ROOT / path).read_text()}\n{CODE_FENCE}\n"


def notebook_page(path: str) -> str:
    """Returns a page with the cells of a notebook, without their outputs."""
    cells = json.loads((ROOT / path).read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    fenced = [
        text if cell["cell_type"] == "markdown" else f"{CODE_FENCE}python\n{text}\n{CODE_FENCE}"
        for cell, text in zip(cells, texts)
    ]
    return "\n\n".join([*fenced, f"*The file is `{path}`.*", ""])


def complete_navigation(entries: list[Any], pages: set[str]) -> list[Any]:
    """Returns the navigation with the names of pages in place of `folder/*`.

    pages: the names of those that no entry names; what is inserted is removed from them.
    """
    complete: list[Any] = []
    for entry in entries:
        if isinstance(entry, Mapping):
            complete += [
                {title: inner if isinstance(inner, str) else complete_navigation(inner, pages)}
                for title, inner in entry.items()
            ]
        elif entry.endswith("/*"):
            found = sorted(page for page in pages if page.startswith(entry.removesuffix("*")))
            pages -= set(found)
            complete += found
        else:
            complete.append(entry)
    return complete


def named_pages(entries: Any) -> set[str]:
    """Returns the names of all pages in a navigation."""
    if isinstance(entries, str):
        return {entries}
    inner = entries.values() if isinstance(entries, Mapping) else entries
    return {name for entry in inner for name in named_pages(entry)}


def build_site(out: Path, mermaid: Path | None, folder: Path) -> None:
    """Builds the site. folder: for the pages. Raises Abort for a warning of MkDocs, which it has printed."""
    Pages(folder).write_all()
    config = load_config(str(SITE / "mkdocs.yml"), docs_dir=str(folder), site_dir=str(out))
    written = {str(path.relative_to(folder)) for path in folder.rglob("*.md")}
    left = {page for page in written - named_pages(config.nav) if not page.startswith("source/")}
    config.nav = complete_navigation(config.nav, left)
    if left:
        sys.exit(f"error: add {', '.join(sorted(left))} to the navigation in .github/site/mkdocs.yml")
    if mermaid is not None:
        shutil.copy(mermaid, folder / "mermaid.min.js")
        config.extra_javascript = [*config.extra_javascript, "mermaid.min.js"]
    build(config)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="folder of the site")
    parser.add_argument("--mermaid", type=Path, help="mermaid.min.js of the npm package mermaid, version 11")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        try:
            build_site(args.out.absolute(), args.mermaid, Path(folder))
        except Abort as error:
            print(error, file=sys.stderr)
            return 1
    print(f"The site is in {args.out}: python -m http.server --bind=127.0.0.1 --directory={args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
