"""Every recipe parses, and so does every command of every README; relative links lead to files."""

import re
import shlex
from pathlib import Path

import pytest

from sample_factory.benchmarking.benchmark_request import parse_arguments as parse_benchmark
from sample_factory.benchmarking.random_sampler import RandomSamplerFlags
from sample_factory.config.parsing import parse_config
from sample_factory.envs import gym_family
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.human_game import HumanGameFlags
from sample_factory.evaluation.match_request import MatchFlags
from sample_factory.plotting import plot_curves, plot_population

ROOT = Path(__file__).parent.parent.parent
RECIPES = sorted((ROOT / "configs").glob("*.json"))
PAGES = [path for top in (".", "configs", ".github") for path in sorted((ROOT / top).glob("*.md"))]
PAGES += sorted((ROOT / "sample_factory").rglob("README.md"))
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
COMMAND = re.compile(r"python -m sample_factory\.([\w.]+) ([^`\n#]+)")


def readme_commands():
    """Returns (module, flags) of the commands that can be run as they are, each once."""
    found = [pair for page in PAGES for pair in COMMAND.findall(page.read_text().replace("\\\n", ""))]
    return [
        (module, flags.strip())
        for module, flags in dict.fromkeys(found)
        if "..." not in flags and "--help" not in flags and not module.startswith("algorithms.")
    ]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_parsed(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(gym_family, "check_env", lambda name: None)  # whether or not its package is here
    config = parse_config([f"--cfg={recipe}", f"--train_dir={tmp_path}"], resolve_family)
    assert config.unknown == {}


def test_there_are_recipes_and_commands():
    assert RECIPES and {"train", "enjoy"} <= {module for module, _ in readme_commands()}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("module, flags", readme_commands())
def test_every_command_of_the_pages_is_parsed(module, flags, tmp_path):
    if module == "plotting.plot_curves":
        assert plot_curves.parse_arguments(shlex.split(flags)).folders
        return
    if module == "plotting.plot_population":
        assert plot_population.parse_arguments(shlex.split(flags)).folder
        return
    if module == "benchmark":
        assert parse_benchmark(shlex.split(flags)).config.unknown == {}
        return
    extra = {
        "dummy_sampler": {"random_sampler": RandomSamplerFlags},
        "match": {"match": MatchFlags},
        "play_doom": {"human_game": HumanGameFlags},
    }.get(module)
    argv = [*shlex.split(flags), f"--train_dir={tmp_path}"]
    assert parse_config(argv, resolve_family, extra_sections=extra).unknown == {}
