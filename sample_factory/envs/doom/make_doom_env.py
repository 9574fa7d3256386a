"""Makes the envs of the `doom_` family, and those that users describe with a DoomSpec of their own."""

from typing import Any

from sample_factory.envs.doom.doom_env import DoomEnv
from sample_factory.envs.doom.doom_specs import DOOM_SPECS, DoomSpec, Match
from sample_factory.envs.doom.engine import DoomEngine, EngineSettings, MatchSettings
from sample_factory.envs.protocol import EnvConfig


def make_doom_env(
    full_env_name: str,
    cfg: Any,
    env_config: EnvConfig | None = None,
    render_mode: str | None = None,
    spec: DoomSpec | None = None,
) -> DoomEnv:
    """One env. `cfg` has the flags of DoomFlags and env_frameskip as attributes.

    spec: what to play when it is not one of this package's scenarios. A scenario of your own is
        `register_env("my_doom_env", functools.partial(make_doom_env, spec=DoomSpec(...)), ...)`.
    Raises ValueError for an unknown name, NotImplementedError for a match with several learning players.
    """
    if spec is None:
        spec = doom_spec(full_env_name)
    settings = EngineSettings(
        env_name=full_env_name,
        scenario=spec.scenario_path(),
        wad_folders=(cfg.doom_scenarios_dir,),
        wide_aspect_ratio=cfg.wide_aspect_ratio,
        match=_match_settings(full_env_name, spec.match, cfg),
    )
    return DoomEnv(spec, DoomEngine(settings), cfg.env_frameskip, (cfg.res_w, cfg.res_h), render_mode)


def doom_spec(full_env_name: str) -> DoomSpec:
    """The spec of that name. Raises ValueError, with the names that there are."""
    if full_env_name not in DOOM_SPECS:
        raise ValueError(f"There is no env {full_env_name}; choose one of {', '.join(DOOM_SPECS)}")
    return DOOM_SPECS[full_env_name]


def _match_settings(env_name: str, match: Match | None, cfg: Any) -> MatchSettings | None:
    if match is None:
        return None
    num_agents = cfg.num_agents if cfg.num_agents > 0 else match.num_agents
    num_bots = cfg.num_bots if cfg.num_bots >= 0 else match.num_bots
    if num_agents > 1:
        raise NotImplementedError(
            f"{env_name} with {num_agents} learning players is not supported; one player against bots is: "
            f"--num_agents=1 --num_bots={num_agents - 1 + num_bots}"
        )
    if cfg.num_humans > 0:
        raise NotImplementedError(f"{env_name}: --num_humans={cfg.num_humans}: people cannot join yet")
    minutes = cfg.timelimit if cfg.timelimit is not None else match.minutes
    return MatchSettings(num_bots, minutes, match.respawn_delay_seconds, cfg.start_bot_difficulty)
