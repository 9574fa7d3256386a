"""Score of one player: training reward of each step, results of each episode."""

from collections.abc import Mapping, Sequence
from typing import Any

from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.reward_shaping import VariableShaping

MAX_PLAYERS = 9  # the scenarios report the frags of at most 9 players
MATCH_VARIABLES = (
    "FRAGCOUNT",
    "DEATHCOUNT",
    "HITCOUNT",
    "DAMAGECOUNT",
    "PLAYER_NUMBER",
    "PLAYER_COUNT",
    *(f"PLAYER{number}_FRAGCOUNT" for number in range(1, MAX_PLAYERS + 1)),
)


def final_place(frags: Sequence[float], player: int) -> int:
    """Returns the place of a player, 1 for the best; players with equal frags share the better place."""
    return 1 + sum(other > frags[player] for other in frags)


def leader_gap(frags: Sequence[float], player: int) -> float:
    """Returns the leader's frags minus the player's; for a leader, minus the lead over the second."""
    others = [count for index, count in enumerate(frags) if index != player]
    return max(others) - frags[player] if others else 0.0


def frags_of_players(values: Sequence[float], variables: Mapping[str, int]) -> list[float]:
    """Returns the frags of all players of the match, bots included, in the order of player numbers."""
    # After a human has left, the numbers of other players may exceed the count.
    count = values[variables["PLAYER_COUNT"]]
    number = values[variables["PLAYER_NUMBER"]] + 1
    num_players = min(int(max(count, number)), MAX_PLAYERS)
    return [values[variables[f"PLAYER{number}_FRAGCOUNT"]] for number in range(1, num_players + 1)]


def match_stats(
    values: Sequence[float], at_start: Sequence[float], variables: Mapping[str, int]
) -> dict[str, float]:
    """Returns the results of a match for one player, from its variables at the end and at the start.

    The difference is needed because the engine does not reset deaths, hits and damage between episodes.
    """
    counts = {
        name: values[variables[name]] - at_start[variables[name]]
        for name in ("DEATHCOUNT", "HITCOUNT", "DAMAGECOUNT")
    }
    frags = values[variables["FRAGCOUNT"]]
    all_frags = frags_of_players(values, variables)
    player = int(values[variables["PLAYER_NUMBER"]])
    return {
        "frags": frags,
        "deaths": counts["DEATHCOUNT"],
        "kdr": frags / (counts["DEATHCOUNT"] + 1),
        "hits": counts["HITCOUNT"],
        "damage": counts["DAMAGECOUNT"],
        "num_players": float(len(all_frags)),
        "final_place": float(final_place(all_frags, player)),
        "leader_gap": leader_gap(all_frags, player),
    }


def is_match_won(stats: Mapping[str, float]) -> bool:
    """Whether the player is the only one at the top."""
    return stats["final_place"] == 1 and stats["leader_gap"] < 0


class PlayerScore:
    """Computes rewards and results of one player from the engine's rewards and variables.

    variables: maps the names of the engine's variables to their places in the lists of values.
    Raises ValueError if the scenario does not report a variable that the score needs.
    """

    def __init__(self, spec: DoomSpec, variables: Mapping[str, int]):
        needed = (*(["HEALTH"] if spec.reward_healing else []), *(MATCH_VARIABLES if spec.match else []))
        missing = [name for name in needed if name not in variables]
        if missing:
            raise ValueError(f"{spec.name}: {spec.scenario} must list the variables {', '.join(missing)}")
        self._spec = spec
        self._variables = variables
        self._health = variables["HEALTH"] if spec.reward_healing else None
        self._scheme = spec.shaping
        self._shaping: VariableShaping | None = None  # of the current episode
        self._is_fresh = False  # the episode has begun, but had no step yet

    @property
    def needs_variables(self) -> bool:
        """Whether `start` and `step` read the values; if not, callers save time by passing an empty list."""
        return self._health is not None or self._scheme is not None or self._spec.match is not None

    def set_scheme(self, scheme: Mapping[str, Any]) -> None:
        """Replaces the shaping scheme from the next episode on, or at once if this one had no step yet."""
        self._scheme = scheme
        if self._is_fresh:
            self.start(self._at_start)

    def start(self, values: Sequence[float]) -> None:
        """Begins an episode; `values` are those of its first state."""
        self._shaping = VariableShaping(self._scheme, self._variables) if self._scheme else None
        self._at_start = values
        self._previous = values
        self._engine_return = 0.0
        self._is_fresh = True

    def step(self, engine_reward: float, values: Sequence[float]) -> float:
        """Returns the training reward of a step that did not end the episode."""
        self._is_fresh = False
        self._engine_return += engine_reward
        reward = engine_reward
        if self._shaping is not None:
            reward += self._shaping.step(values)
        if self._health is not None:
            reward += values[self._health] > self._previous[self._health]
            self._previous = values
        return reward * self._spec.reward_scale

    def end(self, engine_reward: float, values: Sequence[float]) -> tuple[float, dict[str, Any]]:
        """Returns the training reward, without shaping, and the info of the step that ended the episode.

        values: those at the end; read for a match only.
        """
        self._engine_return += engine_reward
        info: dict[str, Any] = {}
        stats = match_stats(values, self._at_start, self._variables) if self._spec.match else {}
        if stats:
            info["episode_extra_stats"] = stats
        if self._spec.objective == "engine_return":
            info["true_objective"] = self._engine_return
        elif self._spec.objective == "frags":
            info["true_objective"] = stats["frags"]
        elif self._spec.objective == "match_won":
            info["true_objective"] = float(is_match_won(stats))
        return engine_reward * self._spec.reward_scale, info
