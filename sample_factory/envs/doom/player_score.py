"""From the engine's rewards and variables to one player's training reward and results."""

from collections.abc import Mapping, Sequence
from typing import Any

from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.multiplayer_stats import NEEDED_VARIABLES, is_match_won, match_stats
from sample_factory.envs.doom.reward_shaping import VariableShaping


class PlayerScore:
    """Keeps the score of one player. `variables` maps names to places in the lists of values.

    Raises ValueError when the scenario does not report what the score needs.
    """

    def __init__(self, spec: DoomSpec, variables: Mapping[str, int]):
        needed = (*(["HEALTH"] if spec.reward_healing else []), *(NEEDED_VARIABLES if spec.match else []))
        missing = [name for name in needed if name not in variables]
        if missing:
            raise ValueError(f"{spec.name}: {spec.scenario} must list the variables {', '.join(missing)}")
        self._spec = spec
        self._variables = variables
        self._health = variables["HEALTH"] if spec.reward_healing else None
        self._scheme = spec.shaping
        self._shaping: VariableShaping | None = None
        self._is_fresh = False  # an episode has begun, and had no step

    @property
    def needs_variables(self) -> bool:
        """False: `start`, `step` may get an empty list, which saves its making."""
        return self._health is not None or self._scheme is not None or self._spec.match is not None

    @property
    def scheme(self) -> Mapping[str, Any]:
        """The shaping in use, {} where there is none."""
        return self._scheme or {}

    def set_scheme(self, scheme: Mapping[str, Any]) -> None:
        """Takes effect at the next start, or at once if there has been no step since the last."""
        self._scheme = scheme
        if self._is_fresh:
            self.start(self._at_start)

    def start(self, values: Sequence[float]) -> None:
        """An episode begins; `values` are those of its first state."""
        self._shaping = VariableShaping(self._scheme, self._variables) if self._scheme else None
        self._at_start = self._previous = values
        self._engine_return = 0.0
        self._is_fresh = True

    def step(self, engine_reward: float, values: Sequence[float]) -> float:
        """The training reward of a step that did not end the episode."""
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
        """Training reward and info of the step that ended the episode, which is not shaped.

        `values` are those at the end, and needed for a match only.
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
