"""Scripted opponents whose level follows the results of the player against them."""

from pathlib import Path

import numpy as np

LEVELS = range(10, 101, 10)
DEFINITION = """{{
    name {name}
    aiming {level}
    perfection {level}
    reaction {level}
    isp {level}
    color "40 cf 00"
    skin base
}}
"""


def bot_name(level: int, index: int) -> str:
    return f"BOT_{level}_{index}"


def write_bots(path: Path, max_bots: int) -> None:
    """Writes the engine's file of bots: `max_bots` of each level, which is a percentage of the best."""
    bots = [(level, bot_name(level, index)) for level in LEVELS for index in range(max_bots)]
    path.write_text("\n".join(DEFINITION.format(level=level, name=name) for level, name in bots))


class BotDifficulty:
    """A curriculum over matches: a victory raises the level of the next bots, the last two places lower it.

    The difficulty is a percentage, the mean of the bots' levels. Beyond 100, even the weaker bots of a match
    play at the best level. A difficulty that starts at MAX is never changed.
    """

    STEP = 10
    LEVEL_STD = 10.0
    MAX = 150

    def __init__(self, start: int):
        self._difficulty = min(start, self.MAX)
        self._adapts = start < self.MAX

    @property
    def difficulty(self) -> int:
        return self._difficulty

    def draw(self, num_bots: int, rng: np.random.Generator) -> list[str]:
        """Returns the names of the next match's bots; their levels are normal around the difficulty."""
        levels = rng.normal(self._difficulty, self.LEVEL_STD, num_bots)
        levels = np.clip(np.round(levels / 10) * 10, LEVELS[0], LEVELS[-1]).astype(int)
        return [bot_name(level, index) for index, level in enumerate(levels.tolist())]

    def update(self, stats: dict[str, float]) -> None:
        """Adds the difficulty to the `match_stats` of a match that has ended, then adapts it to them."""
        stats["bot_difficulty"] = float(self._difficulty)
        if not self._adapts:
            return
        if stats["leader_gap"] < 0:
            self._difficulty = min(self._difficulty + self.STEP, self.MAX)
        elif stats["final_place"] >= stats["num_players"] - 1:
            self._difficulty = max(self._difficulty - self.STEP, 0)
