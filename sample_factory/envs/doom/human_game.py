"""The command `play_doom`: a human plays Doom, alone or in a match with trained agents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class Keys(NamedTuple):
    """Keys with one purpose. buttons: names of the engine; each is pressed by one of the keys."""

    keys: str
    purpose: str
    buttons: tuple[str, ...]


# Defaults of the engine (defbinds.txt in vizdoom.pk3).
KEYS = (
    Keys("up, down", "move forward, backward", ("MOVE_FORWARD", "MOVE_BACKWARD")),
    Keys(", .", "step left, right", ("MOVE_LEFT", "MOVE_RIGHT")),
    Keys("left, right", "turn", ("TURN_LEFT", "TURN_RIGHT")),
    Keys("mouse, left, right", "turn", ("TURN_LEFT_RIGHT_DELTA",)),
    Keys("Ctrl, left button", "shoot", ("ATTACK",)),
    Keys("Shift", "run", ("SPEED",)),
    Keys("Space", "open doors, press switches", ("USE",)),
    Keys("1 to 7", "choose a weapon", tuple(f"SELECT_WEAPON{number}" for number in range(1, 8))),
    Keys("mouse wheel", "next, previous weapon", ("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON")),
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
        print(instructions(config.env_name, spec.goal, human_player.buttons(settings)), flush=True)
        frameskip = config.env.env_frameskip or 1
        episodes = human_player.play(spec, settings, endpoint, config.run.seed, frameskip=frameskip)
        for episode, results in enumerate(episodes, 1):
            text = "  ".join(f"{name} {value:.5g}" for name, value in results.items())
            print(f"episode {episode}  {text}", flush=True)
        print("The game is over.")
    except (ValueError, FileNotFoundError) as error:
        raise ConfigError(str(error)) from error


def instructions(env_name: str, goal: str, buttons: Sequence[str]) -> str:
    """Returns the goal of a scenario and the keys for its buttons, a line each."""
    lines = [env_name, goal] if goal else [env_name]
    for keys in KEYS:
        if not set(buttons).isdisjoint(keys.buttons):
            lines.append(f"  {keys.keys:<20}{keys.purpose}")
    return "\n".join([*lines, "The score is printed here. To stop, close the window or press Ctrl+C here."])
