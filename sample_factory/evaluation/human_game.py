"""A human plays Doom, alone or in a match with trained agents."""

from dataclasses import dataclass

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag


@dataclass(frozen=True)
class HumanGameFlags:
    """The match to join."""

    join: str | None = flag(
        None,
        "address of a match that waits for humans, printed by `enjoy --num_humans=1`; play alone if left out",
        metavar="HOST:PORT",
    )


def play(config: Config) -> None:
    """Plays until the window is closed, the other players of a match have left, or Ctrl+C.

    config: from `parse_config` with the extra section `human_game`.
    Raises ConfigError for bad input, NotPlayed, KeyboardInterrupt.
    """
    from sample_factory.envs.doom import human_player
    from sample_factory.envs.doom.make_doom_env import doom_spec, engine_settings

    join = config.extra["human_game"].join
    cfg = config.namespace()
    try:
        endpoint = None if join is None else human_player.Endpoint.parse(join)
        spec = doom_spec(config.env_name)
        # This process has one player, the human: alone, or (num_humans=1) as the one who joins a match.
        cfg.num_agents = 1
        cfg.num_humans = 0 if endpoint is None else 1
        settings = engine_settings(spec.name, spec, cfg)
        print("\n".join([config.env_name, spec.goal] if spec.goal else [config.env_name]))
        for keys in human_player.keys_of(settings):
            print(f"  {keys.keys:<20}{keys.purpose}")
        print("The score is printed here. To stop, close the window or press Ctrl+C here.", flush=True)
        frameskip = config.env.env_frameskip or 1
        episodes = human_player.play(spec, settings, endpoint, config.run.seed, frameskip=frameskip)
        for episode, results in enumerate(episodes, 1):
            text = "  ".join(f"{name} {value:.5g}" for name, value in results.items())
            print(f"episode {episode}  {text}", flush=True)
        print("The game is over.")
    except (ValueError, FileNotFoundError) as error:
        raise ConfigError(str(error)) from error
