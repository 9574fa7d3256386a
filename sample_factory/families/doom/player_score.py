"""Computes the score of one player: training reward of each step, results of each episode."""

from collections.abc import Mapping, Sequence
from typing import Any

from sample_factory.envs.protocol import COST
from sample_factory.families.doom.doom_family import DoomSpec
from sample_factory.families.doom.shaping_schemes import NUM_SLOTS

# Larger changes are clipped: a rocket into a crowd must not outweigh a frag, and a player crushed by another
# one's respawn loses a million points of health.
MAX_CHANGE = {"DAMAGECOUNT": 200.0, "HITCOUNT": 5.0, "HEALTH": 200.0}
CELL = 64.0  # map units: side of the squares whose first visits are rewarded
# A weapon held for fewer readings is skipped while the player cycles through the slots.
MIN_READINGS_OF_SELECTED = 5
MAX_PLAYERS = 9  # the scenarios report the frags of at most 9 players
COUNTS = {"deaths": "DEATHCOUNT", "hits": "HITCOUNT", "damage": "DAMAGECOUNT"}
KILLS = {"kills": "KILLCOUNT"}  # of monsters
FRAGS = ("FRAGCOUNT", *(f"PLAYER{number}_FRAGCOUNT" for number in range(1, MAX_PLAYERS + 1)))


def match_variables(is_deathmatch: bool) -> list[str]:
    """Returns the game variables that `match_stats` reads."""
    of_mode = FRAGS if is_deathmatch else KILLS.values()
    return [*COUNTS.values(), "PLAYER_NUMBER", "PLAYER_COUNT", *of_mode]


def scored_variables(spec: DoomSpec) -> list[str]:
    """Returns the game variables that rewards, costs and results of a spec read. Raises ValueError for a
    scheme that `VariableShaping` cannot read."""
    names = [
        *_variables_of(spec.shaping, f"{spec.name}: shaping"),
        *_variables_of(spec.cost, f"{spec.name}: cost"),
    ]
    if spec.reward_healing:
        names.append("HEALTH")
    if spec.match:
        names += match_variables(spec.match.deathmatch) + (["DEAD"] if names else [])
    return names


def _variables_of(scheme: Mapping[str, Any] | None, name: str) -> list[str]:
    """Returns the game variables that a scheme reads. name: what to call the scheme in an error message."""
    scheme = scheme or {}
    unknown = scheme.keys() - {"delta", "selected_weapon", "first_visit"}
    if unknown:
        raise ValueError(
            f"{name} has the parts delta, selected_weapon and first_visit, not {', '.join(sorted(unknown))}"
        )
    names = list(scheme.get("delta", {}))
    if scheme.get("selected_weapon"):
        names += ["SELECTED_WEAPON", "SELECTED_WEAPON_AMMO"]
    if scheme.get("first_visit"):
        names += ["POSITION_X", "POSITION_Y"]
    return names


def final_place(frags: Sequence[float], player: int) -> int:
    """Returns the place of a player, 1 for the best; players with equal frags share the better place."""
    return 1 + sum(other > frags[player] for other in frags)


def leader_gap(frags: Sequence[float], player: int) -> float:
    """Returns by how many frags the player is behind the leader; for the leader, minus its lead."""
    others = [count for index, count in enumerate(frags) if index != player]
    return max(others) - frags[player] if others else 0.0


def match_stats(
    values: Sequence[float],
    at_start: Sequence[float],
    variables: Mapping[str, int],
    is_deathmatch: bool = True,
) -> dict[str, float]:
    """Returns the results of a match for one player, from its game variables at the end and at the start.

    variables: name of a game variable -> its index in `values` and `at_start`.

    The results are deaths, hits, damage and the number of players; in a deathmatch also frags, frags per
    death, the final place and the gap to the leader; in cooperation also kills.

    The values at the start are needed: the engine does not reset deaths, hits and damage between episodes.
    """
    counted = COUNTS if is_deathmatch else COUNTS | KILLS
    stats = {stat: values[variables[name]] - at_start[variables[name]] for stat, name in counted.items()}
    player = int(values[variables["PLAYER_NUMBER"]])
    # Bots are players too. After a human has left, the numbers of other players may exceed the count.
    num_players = min(int(max(values[variables["PLAYER_COUNT"]], player + 1)), MAX_PLAYERS)
    stats["num_players"] = float(num_players)
    if not is_deathmatch:
        return stats
    frags = values[variables["FRAGCOUNT"]]
    all_frags = [values[variables[f"PLAYER{number}_FRAGCOUNT"]] for number in range(1, num_players + 1)]
    return {
        **stats,
        "frags": frags,
        "kdr": frags / (stats["deaths"] + 1),
        "final_place": float(final_place(all_frags, player)),
        "leader_gap": leader_gap(all_frags, player),
    }


def is_match_won(stats: Mapping[str, float]) -> bool:
    """Returns whether the player alone has the most frags. stats: result of `match_stats`."""
    return stats["final_place"] == 1 and stats["leader_gap"] < 0


class VariableShaping:
    """Computes the shaping reward of one player during one episode, by the changes of the engine's variables.

    scheme: a nested dict of floats, which population-based training may change; each part may be left out:
        `{"delta": {variable: {"gain": w, "loss": w}}, "selected_weapon": {"SELECTED<slot>": bonus},
        "first_visit": bonus}`. If a variable rises by d, the reward is d * gain; if it falls by d, d * loss.
        The bonus of a weapon slot is paid for each step with a loaded weapon of this slot in hand. The bonus
        of a first visit is paid for each square of CELL x CELL map units that the player enters for the first
        time in the episode.
    variables: index of each engine variable in the lists of values, by name; has all `scored_variables`.
    The first step of the episode and of each new life has no shaping reward.
    """

    def __init__(self, scheme: Mapping[str, Any], variables: Mapping[str, int]):
        self._weights = [
            (variables[name], weight["gain"], weight["loss"], MAX_CHANGE.get(name, float("inf")))
            for name, weight in scheme.get("delta", {}).items()
        ]
        bonuses = scheme.get("selected_weapon", {})
        self._bonus = [bonuses.get(f"SELECTED{slot}", 0.0) for slot in range(NUM_SLOTS)]
        self._selected = variables.get("SELECTED_WEAPON")
        self._ammo = variables.get("SELECTED_WEAPON_AMMO")
        self._dead = variables.get("DEAD")
        self._first_visit: float = scheme.get("first_visit", 0.0)
        self._position = [variables[name] for name in ("POSITION_X", "POSITION_Y") if self._first_visit]
        self._visited: set[tuple[int, ...]] = set()
        self._previous: Sequence[float] | None = None
        self._num_readings = 0  # of the weapon now in hand, in a row

    def step(self, values: Sequence[float]) -> float:
        """Returns a step's shaping reward. values: the engine's variables after the step.

        `values` is kept until the next step: pass a new list each time.
        """
        previous = self._previous
        self._previous = values
        if self._selected is not None:
            is_same = previous is not None and previous[self._selected] == values[self._selected]
            self._num_readings = self._num_readings + 1 if is_same else 1
        reward = self._visit(values) if self._first_visit else 0.0
        if previous is None:
            return 0.0
        if self._dead is not None and previous[self._dead] > 0 and values[self._dead] == 0:  # has respawned
            return 0.0
        is_held = self._num_readings >= MIN_READINGS_OF_SELECTED
        if is_held and self._selected is not None and self._ammo is not None and values[self._ammo] > 0:
            slot = int(values[self._selected])
            reward += self._bonus[slot] if 0 <= slot < NUM_SLOTS else 0.0
        for place, gain, loss, max_change in self._weights:
            change = values[place] - previous[place]
            if change > 0:
                reward += gain * min(change, max_change)
            elif change < 0:
                reward += loss * min(-change, max_change)
        return reward

    def _visit(self, values: Sequence[float]) -> float:
        """Returns the bonus if the player is in a map square that it has not visited before, else 0."""
        square = tuple(int(values[place] // CELL) for place in self._position)
        if square in self._visited:
            return 0.0
        self._visited.add(square)
        return self._first_visit


class PlayerScore:
    """Computes rewards, costs and results of one player from the engine's rewards and variables.

    costs: entries for the info of the last step, {COST: cost}; empty if the spec has no cost.
    variables: index of each engine variable in the lists of values, by name; has all `scored_variables`.
    Raises ValueError if the objective is the result of a deathmatch and the spec has none.
    """

    def __init__(self, spec: DoomSpec, variables: Mapping[str, int]):
        has_frags = spec.match is not None and spec.match.deathmatch
        if spec.objective in ("frags", "match_won") and not has_frags:
            raise ValueError(
                f"{spec.name}: objective={spec.objective!r} needs a deathmatch, which this is not"
            )
        self._spec = spec
        self._variables = variables
        self._health = variables["HEALTH"] if spec.reward_healing else None
        self._scheme = spec.shaping
        self._shaping: VariableShaping | None = None  # of the current episode
        self._costs: VariableShaping | None = None  # of the current episode
        self._is_fresh = False  # the episode has begun, but had no step yet
        self.costs: dict[str, float] = {}

    def set_scheme(self, scheme: Mapping[str, Any]) -> None:
        """Replaces the shaping scheme from the next episode on; at once if the current episode has had no
        step yet.

        scheme: may read only variables that the spec's scheme reads too.
        """
        self._scheme = scheme
        if self._is_fresh:
            self.start(self._at_start)

    def start(self, values: Sequence[float]) -> None:
        """Begins an episode. values: the engine's variables in its first state."""
        self._shaping = VariableShaping(self._scheme, self._variables) if self._scheme else None
        if self._spec.cost:
            self._costs = VariableShaping(self._spec.cost, self._variables)
            self._costs.step(values)
        self._at_start = values
        self._previous = values
        self._engine_return = 0.0
        self._is_fresh = True

    def step(self, engine_reward: float, values: Sequence[float]) -> float:
        """Scores a step that did not end the episode; returns its training reward. engine_reward: sum of the
        engine's rewards in the step. values: the engine's variables after the step."""
        self._is_fresh = False
        self._engine_return += engine_reward
        reward = engine_reward
        if self._costs is not None:
            self.costs = {COST: self._costs.step(values)}
        if self._shaping is not None:
            reward += self._shaping.step(values)
        if self._health is not None:
            reward += values[self._health] > self._previous[self._health]
            self._previous = values
        return reward * self._spec.reward_scale

    def end(self, engine_reward: float, values: Sequence[float]) -> tuple[float, dict[str, Any]]:
        """Ends the episode; returns the training reward (without shaping) and the info of its last step.

        engine_reward: sum of the engine's rewards in the last step. values: the engine's variables at the
        end, used only for the costs and for the results of a match.
        """
        self._engine_return += engine_reward
        info: dict[str, Any] = {} if self._costs is None else {COST: self._costs.step(values)}
        match = self._spec.match
        stats = {}
        if match is not None:
            stats = match_stats(values, self._at_start, self._variables, match.deathmatch)
            info["episode_extra_stats"] = stats
        if self._spec.objective == "engine_return":
            info["true_objective"] = self._engine_return
        elif self._spec.objective is None and (self._spec.shaping or self._spec.reward_healing):
            info["true_objective"] = self._engine_return * self._spec.reward_scale
        elif self._spec.objective == "frags":
            info["true_objective"] = stats["frags"]
        elif self._spec.objective == "match_won":
            info["true_objective"] = float(is_match_won(stats))
        return engine_reward * self._spec.reward_scale, info
