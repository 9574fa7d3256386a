"""Rules for every env family: its flags in the help, the nearest name, the package to install."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from sample_factory.config.flags import ConfigError, section_fields
from sample_factory.envs import env_registry
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import is_found_by_all_commands, resolve_family
from sample_factory.families.mujoco_family import IDS
from sample_factory.train import main
from tests.envs.made import cfg_of, config_of, make_env

ROOT = Path(__file__).parents[2]


class Example(NamedTuple):
    """env: one of the family. typo: its name with a typing error. install: what is to be installed for it."""

    env: str
    typo: str
    install: str


ENVPOOL = "pip install -e '.[envpool]'"
MINIGRID = "pip install -e '.[minigrid]' or '.[envpool]'"
EXAMPLES = {
    "doom_": Example("doom_basic", "doom_bsic", "vizdoom"),
    "gym_": Example("gym_Hopper-v5", "gym_Hoper-v5", "pip install -e '.[mujoco]'"),
    "envpool_": Example("envpool_Pong-v5", "envpool_Pnog-v5", ENVPOOL),
    "pettingzoo_": Example(
        "pettingzoo_butterfly.pistonball_v6",
        "pettingzoo_butterfly.pistonbal_v6",
        "pip install -e '.[pettingzoo]'",
    ),
    "minigrid_": Example("minigrid_DoorKey-5x5-v0", "minigrid_DoorKye-5x5-v0", MINIGRID),
    "MiniGrid-": Example("MiniGrid-DoorKey-5x5-v0", "MiniGrid-DoorKye-5x5-v0", MINIGRID),
    "mujoco_": Example("mujoco_halfcheetah", "mujoco_halfchetah", "pip install -e '.[envpool,mujoco]'"),
    "atari_": Example(
        "atari_pong",
        "atari_pnog",
        "envpool or ale_py, which is not installed: pip install -e '.[envpool]' or '.[atari]'",
    ),
    "dmlab_": Example("dmlab_rooms_watermaze", "dmlab_rooms_watermaz", "families/dmlab/README.md"),
    "football_": Example("football_academy_corner", "football_academy_conrer", ENVPOOL),
    "procgen_": Example("procgen_coinrun", "procgen_conirun", ENVPOOL),
    "generals_": Example("generals_8x8", "generals_8x", "pip install -e '.[generals]'"),
}
OPTIONAL = ("vizdoom", "mujoco", "envpool", "pettingzoo", "minigrid", "ale_py", "deepmind_lab", "generals")

each_family = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)


def test_this_file_has_an_example_of_every_family():
    assert {prefix for prefix, entry in env_registry._FAMILIES.items() if entry.is_built_in} == set(EXAMPLES)
    assert all(example.env.startswith(prefix) for prefix, example in EXAMPLES.items())
    assert all(is_found_by_all_commands(example.env) for example in EXAMPLES.values())


def test_help_alone_names_every_family(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"\n  {prefix}" in text for prefix in EXAMPLES if prefix != "MiniGrid-")  # of version 1


@each_family
def test_help_shows_the_flags_of_the_family_with_its_defaults(example, capsys):
    with pytest.raises(SystemExit) as ended:
        main([f"--env={example.env}", "--help"])
    assert not ended.value.code
    text = capsys.readouterr().out
    flags = resolve_family(example.env).flags
    for field, _ in section_fields(flags) if flags else ():
        assert f"\n  --{field.name}" in text
        assert field.metadata["help"], f"--{field.name} has no explanation"


@each_family
def test_defaults_are_flags(example):
    family = resolve_family(example.env)
    config = config_of(example.env).flat()
    assert {name: config[name] for name in family.defaults} == dict(family.defaults)


@each_family
def test_a_typing_error_gives_the_nearest_name_on_one_line(example):
    with pytest.raises(UnknownEnvError) as refused:
        make_env(example.typo)
    text = str(refused.value)
    nearest = text.partition("did you mean ")[2].partition("?")[0]
    assert nearest.startswith(example.typo.split("-")[0][:4].lower()) and "\n" not in text and len(text) < 300
    assert resolve_family(nearest).make_env is resolve_family(example.env).make_env


@pytest.mark.parametrize("prefix", EXAMPLES)
def test_the_prefix_alone_gives_all_names_or_an_example(prefix):
    for name in (prefix, prefix.rstrip("_-")):
        with pytest.raises(UnknownEnvError, match=f"--env={name} is the beginning of a name") as refused:
            resolve_family(name)
        assert prefix in str(refused.value).partition("complete it")[2]


@pytest.mark.parametrize(
    "env",
    [
        "football_5_vs_5",
        "procgen_maze",
        "minigrid_Empty-5x5-v0",
        "generals_8x8",
        "mujoco_ant",
        "envpool_Ant-v5",
        "pettingzoo_butterfly.pistonball_v6",
    ],
)
def test_a_frameskip_is_refused_where_envs_skip_no_frames(env):
    with pytest.raises(ConfigError, match="--env_frameskip=2"):
        make_env(env, env_frameskip=2)


@pytest.mark.parametrize("env", ["atari_pong", "mujoco_ant", "minigrid_DoorKey-5x5-v0"])
def test_envpool_is_the_default_engine_if_it_is_installed(env, monkeypatch):
    pytest.importorskip("envpool")
    assert resolve_family(env).defaults["env_engine"] == "envpool"
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert resolve_family(env).defaults["env_engine"] == "gymnasium"


@pytest.mark.parametrize(
    ("env", "num_agents"),
    [("football_5_vs_5", 32), ("procgen_starpilot", 64), *((name, 16) for name in IDS)],  # 64 as in the paper
)
def test_an_iteration_of_the_defaults_has_one_or_two_whole_rollouts_of_all_agents(env, num_agents):
    flags = cfg_of(env)
    assert flags.num_workers * flags.num_envs_per_worker * flags.vector_env_copies == num_agents
    one = num_agents * flags.rollout
    assert flags.batch_size * flags.num_batches_per_iteration in (one, 2 * one)
    assert not flags.async_rl


# Runs in a process of its own: other tests have imported the packages in this one.
WITHOUT_PACKAGES = """
import json, sys
envs, missing, train_dir = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(missing))
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
for env in envs:
    try:
        cfg = parse_config([f"--env={env}", f"--train_dir={train_dir}"], resolve_family).namespace()
        resolve_family(env).make(cfg, EnvConfig(0, 0, 0))
    except ImportError as error:  # what the commands print on a line
        print(json.dumps(str(error)))
    else:
        print(json.dumps("made"))
"""


@pytest.fixture(scope="module")
def errors_without_packages(tmp_path_factory) -> dict[str, str]:
    """Returns the message of each family where no optional package is installed."""
    envs = [example.env for example in EXAMPLES.values()]
    request = json.dumps((envs, OPTIONAL, str(tmp_path_factory.mktemp("runs"))))
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGES, request],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return dict(zip(EXAMPLES, map(json.loads, result.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("prefix", EXAMPLES)
def test_a_missing_package_is_one_line_with_what_to_install(prefix, errors_without_packages):
    message = errors_without_packages[prefix]
    assert EXAMPLES[prefix].install in message and "\n" not in message
