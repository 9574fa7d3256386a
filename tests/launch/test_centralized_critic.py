import json

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.launch.checks import check_critic_only_keys, check_names
from sample_factory.launch.notes import describe_networks
from sample_factory.launch.plan import with_centralized_critic
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import observation_layout

PLACE = gym.spaces.Box(-1, 1, (2,), np.float32)
SPACE = gym.spaces.Dict(own=PLACE, others=gym.spaces.Dict(position=PLACE))
ADDED = ("others/others/position", "others/own", "others/present")  # by --centralized_critic


@pytest.fixture
def plan(tmp_path):
    def plan(*flags, teams=(0, 0)):
        """Returns the configuration and the EnvInfo of a run with flags, after its check."""
        register_env("crew", lambda: None)
        family = resolve_family("crew")
        config = parse_config(["--env=crew", f"--train_dir={tmp_path}", *flags], resolve_family)
        kinds = AgentKinds.one(observation_layout(SPACE).space, gym.spaces.Discrete(2), len(teams))
        config, _, info = with_centralized_critic(config, family, EnvInfo(kinds, 1, teams=teams))
        check_critic_only_keys(config, info.kinds)
        return config, info

    return plan


def test_an_observation_of_the_env_stays_hidden_from_the_actor_whatever_its_name(plan):
    key = "others/position"
    config, info = plan("--critic_only_keys", key)
    assert config.model.critic_only_keys == (key,)
    notes = [note.text for note in describe_networks(config, info)]
    assert key not in notes[0] and "(--critic_only_keys)" in notes[1] and key in notes[1]
    config, _ = plan("--critic_only_keys", key, "--centralized_critic=True")
    assert config.model.critic_only_keys == (key, *ADDED)


def test_a_typed_key_that_the_env_has_not_is_refused_also_if_it_looks_like_a_team_mates(plan):
    with pytest.raises(ConfigError, match="the env has no observation others/positon; it has"):
        plan("--critic_only_keys", "others/positon")
    config, _ = plan("--critic_only_keys", ADDED[0], "--centralized_critic=True")
    assert config.model.critic_only_keys == ADDED


def test_an_env_of_one_agent_is_refused(plan):
    with pytest.raises(ConfigError, match="--centralized_critic=True.*needs an env with agents"):
        plan("--centralized_critic=True", teams=(0,))


def test_an_encoder_that_would_not_read_the_others_is_refused_before_the_env_is_tried(tmp_path):
    flags = ["--env=crew", f"--train_dir={tmp_path}", "--centralized_critic=True", "--encoder_custom=map"]
    register_env("crew", lambda: None)
    with pytest.raises(ConfigError, match="--centralized_critic=True.*map"):
        check_names(parse_config(flags, resolve_family))


def test_the_flags_of_another_run_do_not_keep_the_entries_of_its_view(plan, tmp_path):
    saved = {"centralized_critic": True, "critic_only_keys": ["others/position", *ADDED, "others/action"]}
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    again = f"--cfg={tmp_path / 'saved.json'}"
    assert plan(again)[0].model.critic_only_keys == ("others/position", *ADDED)
    assert plan(again, "--centralized_critic=False")[0].model.critic_only_keys == ("others/position",)
