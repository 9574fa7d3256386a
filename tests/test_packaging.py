"""pyproject.toml says what is installed and in which versions; the other files agree with it."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest

import sample_factory

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = PROJECT["optional-dependencies"]["test"]
TORCH = next(requirement for requirement in PINNED if requirement.startswith("torch=="))


def read(name: str) -> str:
    return (ROOT / name).read_text()


def name_of(requirement: str) -> str:
    return re.match(r"[\w-]+", requirement)[0]


def test_the_extra_test_pins_all_dependencies_exactly():
    assert all(re.fullmatch(r"[\w-]+==[\d.]+(;.*)?", requirement) for requirement in PINNED)
    assert {name_of(requirement) for requirement in PROJECT["dependencies"]} <= set(map(name_of, PINNED))


@pytest.mark.parametrize(
    "name",
    [
        "environment.yml",
        "all_tests.sh",
        ".pre-commit-config.yaml",
        ".github/try_release.sh",
        *(f".github/workflows/{name}.yml" for name in ("tests", "site", "release")),
    ],
)
def test_no_other_file_pins_a_version_of_a_package(name):
    assert not re.findall(r"\w[=~]=+\s*\d", read(name))


def test_the_environment_installs_what_the_tests_need():
    assert re.findall(r"pip:\n((?: +- .*\n?)+)", read("environment.yml")) == ["      - -e .[test]\n"]


def test_all_tests_installs_torch_in_the_pinned_version_before_anything_else():
    pattern = re.search(r"pip install .*grep -o '(.*)' pyproject.toml", read("all_tests.sh"))[1]
    assert re.findall(pattern, read("pyproject.toml")) == [TORCH]
    assert read("all_tests.sh").index(pattern) < read("all_tests.sh").index(".[test]")


def test_the_environment_of_the_simulators_has_exact_versions_and_the_torch_of_the_tests():
    lines = [line for line in read("tests/conformance/simulators/requirements.txt").splitlines() if line]
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.match(r"[\w\[\]-]+==[\w.]+( *#|;|$)", pin) for pin in pins), pins
    assert TORCH in pins


@pytest.mark.parametrize("name", ["README.md", ".github/CONTRIBUTING.md"])
def test_pages_name_the_pinned_version_of_torch(name):
    assert set(re.findall(r"torch==[\d.]+", read(name))) <= {TORCH}


def test_the_workflow_runs_all_tests_on_every_python_that_the_classifiers_name():
    classifiers = "\n".join(PROJECT["classifiers"])
    workflow = read(".github/workflows/tests.yml")
    versions = re.findall(r"Python :: (3\.\d+)", classifiers)
    assert re.findall(r'"(3\.\d+)"', workflow) == versions
    assert "run: ./all_tests.sh" in workflow
    assert PROJECT["requires-python"] == f">={versions[0]}"


@pytest.mark.parametrize(("script", "target"), PROJECT["scripts"].items())
def test_a_console_script_is_a_main_function_that_returns_an_exit_code(script, target):
    module_name, _, function = target.partition(":")
    name = module_name.rpartition(".")[2].replace("_", "-")
    assert script == ("sample-factory" if name == "--main--" else f"sample-factory-{name}")
    main = getattr(importlib.import_module(module_name), function)
    signature = inspect.signature(main)
    assert all(parameter.default is not parameter.empty for parameter in signature.parameters.values())
    assert signature.return_annotation in (int, "int")


def test_the_version_has_a_section_in_the_list_of_releases():
    (version,) = set(re.findall(r"^## \[(.*)\]", read(".github/CHANGELOG.md"), re.MULTILINE)[:1])
    assert version == PROJECT["version"] == sample_factory.__version__
    assert f"This is version {version}" in read("README.md")


FINDINGS = sorted((ROOT / "findings").iterdir())


def test_the_developers_page_lists_the_scripts_of_findings():
    section = (
        read(".github/CONTRIBUTING.md").partition("## Surprises of other packages")[2].partition("\n## ")[0]
    )
    assert re.findall(r"^(\w+)  ", section, re.MULTILINE) == [path.stem for path in FINDINGS]


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_a_finding_pins_what_it_installs_and_runs_none_of_our_code(path):
    text = path.read_text()
    assert re.findall(r"^# (Guess|Truth|Why it matters|Source): ", text, re.MULTILINE) == (
        ["Guess", "Truth", "Why it matters", "Source"]
    )
    installed = text.partition("pip install --quiet --disable-pip-version-check")[2].partition("\n\n")[0]
    requirements = installed.replace("\\\n", " ").split()
    assert requirements
    assert all(re.fullmatch(r'"[\w-]+(\[[\w,]+\])?==[\d.]+"', requirement) for requirement in requirements)
    assert "sample_factory" not in text
    assert path.suffix == ".sh" and path.stat().st_mode & 0o111


def test_types_are_shipped_with_the_package():
    assert (ROOT / "sample_factory" / "py.typed").exists()
    setuptools = tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]
    assert "py.typed" in setuptools["package-data"]["sample_factory"]
