"""A critic that sees the observations of a whole team (--centralized_critic): changes to a run's plan."""

from dataclasses import replace

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.wrappers.team_view import ADDED, view_of_state, view_of_team
from sample_factory.models.network_registry import READ_ONLY_OWN_KEYS


def with_centralized_critic(
    config: Config, family: EnvFamily, info: EnvInfo
) -> tuple[Config, EnvFamily, EnvInfo]:
    """Returns config, family and info of a run in which each agent also observes its team mates, for its
    critic only; the same ones without --centralized_critic.

    Raises ConfigError if the env has no teams, or no state, or the encoder would not read the entries.
    """
    # cfg.json also lists the keys that --centralized_critic added in that run: these are dropped. Keys that
    # were typed, or that the env has, stay; `check_critic_only_keys` refuses those that are misspelled.
    named = {*config.typed.get("critic_only_keys", ())}
    named = named.union(*(kind.observation.spaces for kind in info.kinds.spaces))
    keys = tuple(key for key in config.model.critic_only_keys if key in named or not ADDED.match(key))
    if config.model.centralized_critic:
        encoder = config.model.encoder_custom
        if encoder in READ_ONLY_OWN_KEYS:
            raise ConfigError(
                f"--centralized_critic=True needs an encoder that reads every observation, and {encoder} "
                "reads only those of its family; choose another --encoder_custom"
            )
        sees = config.model.centralized_critic_sees
        view = (
            view_of_state(info.kinds, info.state_space)
            if sees == "state"
            else view_of_team(info.kinds, info.teams, with_actions=sees == "actions")
        )
        keys = tuple(dict.fromkeys(keys + view.keys))
        family = replace(family, wrap=view.wrap)
        info = info._replace(kinds=view.kinds)
    return replace(config, model=replace(config.model, critic_only_keys=keys)), family, info
