"""Makes the envs of the `doom_` family, and envs that users describe with a DoomSpec of their own."""

import dataclasses
from typing import Any

from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.doom.doom_env import DoomEnv
from sample_factory.families.doom.doom_family import DOOM_SPECS, GAME_FIELDS, DoomSpec
from sample_factory.families.doom.doom_match_env import DoomMatchEnv
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.families.doom.game_configuration import EngineSettings, check_rules
from sample_factory.families.doom.observation import measured_variables
from sample_factory.families.doom.player_score import MAX_PLAYERS, scored_variables
from sample_factory.families.doom.shaping_schemes import parse_shaping


def make_doom_env(
    full_env_name: str,
    cfg: Any,
    env_config: EnvConfig | None = None,
    render_mode: str | None = None,
    spec: DoomSpec | None = None,
) -> DoomEnv | DoomMatchEnv:
    """Makes one env: a DoomMatchEnv if several agents or humans take part, otherwise a DoomEnv.

    cfg: has the flags of DoomFlags and env_frameskip as attributes. An env_frameskip of None, its value
        without doom_defaults, is one tic.
    spec: needed for a scenario that is not in DOOM_SPECS. To register a scenario of your own, call
        `register_env("my_doom_env", functools.partial(make_doom_env, spec=DoomSpec(...)), ...)`.
    Raises ValueError for an unknown name, or for more players than a match can have.
    """
    if spec is None:
        spec = doom_spec(full_env_name)
    spec = _with_flags(spec, cfg)
    settings = engine_settings(full_env_name, spec, cfg)
    frameskip = cfg.env_frameskip or 1
    resolution = (cfg.res_w, cfg.res_h)
    match = settings.match
    if match is None or not match.has_several_engines:
        return DoomEnv(spec, DoomEngine(settings), frameskip, resolution, render_mode)
    if match.num_humans and env_config is not None and env_config.env_id > 0:
        raise ValueError(
            f"{full_env_name}: --num_humans={match.num_humans} needs an experiment with one env: humans can "
            "join one match only; use enjoy"
        )
    engines = [DoomEngine(settings, index) for index in range(match.num_agents)]
    return DoomMatchEnv(spec, engines, frameskip, resolution, render_mode)


def engine_settings(env_name: str, spec: DoomSpec, cfg: Any) -> EngineSettings:
    """Returns the settings of an env's engines: the spec's, overridden by flags. Raises ValueError for flags
    that do not fit the spec."""
    match = spec.match
    if match is None and cfg.num_humans > 0:
        raise ValueError(
            f"{env_name}: --num_humans={cfg.num_humans}: humans cannot join a game for one player"
        )
    if match is not None:
        check_rules(env_name, match)
        difficulty = cfg.start_bot_difficulty
        match = match._replace(
            num_agents=cfg.num_agents if cfg.num_agents > 0 else match.num_agents,
            num_humans=cfg.num_humans,
            num_bots=cfg.num_bots if cfg.num_bots >= 0 else match.num_bots,
            minutes=cfg.timelimit if cfg.timelimit is not None else match.minutes,
            start_bot_difficulty=difficulty if difficulty is not None else match.start_bot_difficulty,
        )
        if match.num_engines + match.num_bots > MAX_PLAYERS:
            humans = f"{cfg.num_humans} humans " if cfg.num_humans else ""
            raise ValueError(
                f"{env_name}: {match.num_agents} agents {humans}and {match.num_bots} bots are more than the "
                f"{MAX_PLAYERS} players of a match whose frags the scenario reports; lower --num_agents or "
                "--num_bots"
            )
        if match.start_bot_difficulty is not None and not match.deathmatch:
            raise ValueError(f"{env_name}: --start_bot_difficulty follows frags, and this is no deathmatch")
    folders = (cfg.doom_scenarios_dir,)
    settings = EngineSettings(
        env_name,
        spec.scenario_path(),
        folders,
        cfg.wide_aspect_ratio,
        match,
        variables=(*scored_variables(spec), *measured_variables(spec), *spec.variables),
        buffers=spec.buffers,
        is_grey=spec.grey,
    )
    return settings.in_level(spec, {flag: getattr(cfg, flag) for flag in GAME_FIELDS})


def _with_flags(spec: DoomSpec, cfg: Any) -> DoomSpec:
    """Returns the spec with its rewards, costs and observations replaced where flags set them."""
    chosen = {
        "shaping": parse_shaping(cfg.doom_shaping),
        "cost": parse_shaping(cfg.doom_cost, "doom_cost"),
        "variables": tuple(cfg.doom_variables) or None,
        "buffers": tuple(cfg.doom_buffers) or None,
        "grey": cfg.doom_grey,
    }
    return dataclasses.replace(spec, **{name: value for name, value in chosen.items() if value is not None})


def doom_spec(full_env_name: str) -> DoomSpec:
    """Returns the spec of an env. Raises ValueError, with the names of all specs, for an unknown name."""
    if full_env_name not in DOOM_SPECS:
        raise ValueError(f"There is no env {full_env_name}; choose one of {', '.join(DOOM_SPECS)}")
    return DOOM_SPECS[full_env_name]
