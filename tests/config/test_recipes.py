"""Every recipe parses and says what to expect. (What the pages say is checked in test_pages.py.)"""

from pathlib import Path

import pytest

from sample_factory.config.experiment_folder import read_expectation
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.families import gym_family

RECIPES = sorted((Path(__file__).parents[2] / "configs").glob("*.json"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_parsed(recipe, tmp_path, monkeypatch):
    any_module = ("any", "")
    # Whether or not its package is here.
    monkeypatch.setattr(gym_family, "parse_name", lambda name: any_module)
    config = parse_config([f"--cfg={recipe}", f"--train_dir={tmp_path}"], resolve_family)
    assert config.unknown == {}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_listed_on_the_page_and_says_what_to_expect_and_where_the_curve_is(recipe):
    assert f"| `{recipe.stem}`" in (recipe.parent / "README.md").read_text()
    expectation = read_expectation(str(recipe))
    assert expectation is not None and "configs/README.md" in expectation
    assert len(expectation) <= 80  # a line of a terminal
