"""A critic that sees the observations of a whole team (--centralized_critic): changes of a run's plan."""

from dataclasses import replace

from sample_factory.config.config import Config
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.wrappers.team_view import view_of_state, view_of_team


def with_centralized_critic(
    config: Config, family: EnvFamily, info: EnvInfo
) -> tuple[Config, EnvFamily, EnvInfo]:
    """Returns what makes envs whose agents also observe their team, as observations for the critic only.

    Raises ConfigError if the env has no teams, or no state.
    """
    sees = config.model.centralized_critic_sees
    if sees == "state":
        view = view_of_state(info.kinds, info.state_space)
    else:
        view = view_of_team(info.kinds, info.teams, with_actions=sees == "actions")
    # A run that is resumed has these keys in its cfg.json.
    keys = tuple(dict.fromkeys((*config.model.critic_only_keys, *view.keys)))
    return (
        replace(config, model=replace(config.model, critic_only_keys=keys)),
        replace(family, wrap=view.wrap),
        info._replace(kinds=view.kinds),
    )
