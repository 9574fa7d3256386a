"""Draws the game of an agent at 640x480, while its policy sees the resolution of its training."""

import logging

import vizdoom

from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.film import Film

log = logging.getLogger("sample_factory")

# Equal in two engines only if they play the same game.
WITNESSES = (
    vizdoom.GameVariable.POSITION_X,
    vizdoom.GameVariable.POSITION_Y,
    vizdoom.GameVariable.ANGLE,
    vizdoom.GameVariable.HEALTH,
)


class Viewer:
    """Repeats the game of an engine in a second one, with the same seeds and actions.

    A reduced picture of the second engine cannot replace the first one's: details differ, for example the
    numbers at the bottom, and so would a policy's actions. The game itself is the same in both if no other
    engine takes part, because it depends on seeds and actions only. (The engines of a match exchange
    messages, whose timing decides who starts where.)
    """

    def __init__(self, played: DoomEngine, frameskip: int, render_mode: str):
        """played: the engine whose game is repeated; it must not have started yet."""
        self._played = played
        self._engine = DoomEngine(played.settings._replace(is_viewer=True))
        self._engine.bot_difficulty = played.bot_difficulty
        self._frameskip = frameskip
        self._has_warned = False
        self.film = Film(self._engine, render_mode)

    def new_episode(self, seed: int) -> None:
        """Begins the episode that the played engine has begun with this seed."""
        self._engine.new_episode(seed)
        self.film.add()

    def step(self, buttons: list[float]) -> None:
        """Repeats the step that the played engine has made with these button values."""
        game = self._engine.game
        num_parts = self._frameskip if self.film.is_of_every_tic else 1
        for _ in range(num_parts):
            if not game.is_episode_finished():
                game.make_action(buttons, self._frameskip // num_parts)
                self.film.add()
        if not self._has_warned and _state(self._engine) != _state(self._played):
            self._has_warned = True
            log.warning(
                "%s: the pictures no longer show the game that the policy plays; its results are right",
                self._played.settings.env_name,
            )

    def close(self) -> None:
        self._engine.close()


def _state(engine: DoomEngine) -> list[float]:
    return [engine.game.get_game_variable(variable) for variable in WITNESSES]
