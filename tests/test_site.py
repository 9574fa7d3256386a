"""The documentation site builds without a warning, and lists every flag, figure and function."""

import ast
import html
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sample_factory
from sample_factory.config.sections import FLAG_NAMES, TRAINING_SECTIONS
from sample_factory.monitoring.tensorboard_pages import LEGEND
from tests.config.declared_commands import DECLARED

ROOT = Path(__file__).parent.parent
SITE = ROOT / ".github" / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Returns the folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, SITE / "build.py", f"--out={folder}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def build(monkeypatch):
    """Returns the module of the script."""
    monkeypatch.syspath_prepend(str(SITE))
    monkeypatch.delitem(sys.modules, "build", raising=False)
    import build

    return build


def page(site: Path, name: str) -> str:
    return (site / name / "index.html").read_text()


def test_every_flag_has_an_address(site):
    text = page(site, "flags")
    own = [section for command in DECLARED for section in command.sections.values()]
    flags = {name for section in (*TRAINING_SECTIONS.values(), *own) for name in vars(section()) if name}
    assert {name for name in flags if f'id="{name}"' not in text} == set()
    assert {name for name in FLAG_NAMES if name not in text} == set(), "names of version 2"
    assert 'id="doom_pixel_format"' in text or 'id="num_bots"' in text, "flags of a family of envs"


def test_a_flag_is_shown_with_type_default_bounds_and_what_it_needs(site):
    text = html.unescape(re.sub(r"<[^>]*>", "", page(site, "flags")))
    entry = text.partition("\n--gae_lambda¶")[2].partition("\n--with_vtrace¶")[0]
    assert "number · at least 0, at most 1 · default 0.95" in entry
    assert "Only with --algo=APPO and --with_vtrace=False; or with --algo=VMPO." in entry


def test_every_figure_of_the_legend_is_shown(site):
    text = page(site, "figures")
    tags = {tag for tags in LEGEND for tag in tags.split(", ")}
    assert {tag for tag in tags if f"<code>{tag}</code>" not in text} == set()


def test_every_public_name_is_in_the_interface(site):
    text = page(site, "interface")
    names = set(sample_factory.__all__) - {"__version__"}
    assert {name for name in names if not re.search(rf'id="sample_factory\.[\w.]*\b{name}"', text)} == set()


def test_messages_of_errors_can_be_found_by_their_first_words(site):
    assert "must be a multiple of --rollout=…" in html.unescape(page(site, "errors"))


def test_nothing_is_loaded_from_another_server(site):
    loaded = (
        r'<(?:script|img|link rel="(?:stylesheet|icon|preconnect)")[^>]*(?:src|href)="(?:https?:)?//[^"]*'
    )
    found = [match for path in site.rglob("*.html") for match in re.findall(loaded, path.read_text())]
    assert found == []


def test_a_broken_link_and_a_broken_anchor_are_errors(build, tmp_path, caplog):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text("# Start\n\n[a](missing.md) [b](#nowhere)\n")
    config = build.load_config(
        str(SITE / "mkdocs.yml"),
        docs_dir=str(tmp_path / "pages"),
        site_dir=str(tmp_path / "out"),
        nav=["index.md"],
    )
    with pytest.raises(build.Abort, match="2 warnings"):
        build.build(config)
    assert "missing.md" in caplog.text and "#nowhere" in caplog.text


def test_pages_of_a_folder_are_found_and_any_other_page_is_left(build):
    left = {"envs/new.md", "other/new.md"}
    found = build.complete_navigation([{"Envs": ["envs/index.md", "envs/*"]}, "index.md"], left)
    assert found == [{"Envs": ["envs/index.md", "envs/new.md"]}, "index.md"]
    assert left == {"other/new.md"}


@pytest.mark.parametrize("name", sorted(set(sample_factory.__all__) - {"__version__"}))
def test_the_docstring_of_a_public_name_has_an_example_that_is_python(name):
    text = inspect.getdoc(getattr(sample_factory, name)).partition("For example")[2]
    code = re.findall(r"\n\n((?:    .*\n|\n)+)", f"{text}\n") or re.findall(r"`([^`]+\))`", text)
    ast.parse(textwrap.dedent(code[0]))


@pytest.mark.parametrize("name", sorted(set(sample_factory.__all__) - {"__version__"}))
def test_the_docstring_of_a_public_function_describes_each_parameter(name):
    value = getattr(sample_factory, name)
    parameters = inspect.signature(value).parameters if inspect.isfunction(value) else ()
    described = re.findall(r"(?m)^    \**(\w+): [A-Z\"]", inspect.getdoc(value).partition("\nArgs:\n")[2])
    assert set(parameters) <= set(described)
