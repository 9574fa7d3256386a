"""An EnvPool as a Gymnasium VectorEnv, with an agent for each player of each copy."""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import envpool
import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from sample_factory.envs.abilities import LimitsEpisodes, PlaysInTeams, StepsInBackground
from sample_factory.envs.protocol import EPISODE_CONTINUES, Picture
from sample_factory.spaces.actions import ACTION_MASK

NO_LIMIT = 2**31 - 1  # EnvPool's max_episode_steps of an env without a limit
JOINT_MASK = "joint_action_mask"
LEGAL_ACTIONS = "legal_action_mask"  # EnvPool's name, in infos
NO_INFOS = ("env_id", "ram")
SUCCESS = ("is_success", "success", "solved")
# Infos that say nothing about an episode, or that the framework counts itself.
NO_STATISTIC = re.compile(
    r"(env_id|lives|terminated|elapsed_step|steps_left|current_player|legal_action_mask|id|ko|is_psk)$"
    r"|reward|model_|oracle_|.*(task_id|mission_id|seed|episode_number)$"
)

StepReturn = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class EnvPoolVectorEnv(StepsInBackground, gym.vector.VectorEnv, LimitsEpisodes, PlaysInTeams):
    """Steps copies of an env in C++ threads. Agent c * num_players + p is player p of copy c.

    Infos are arrays with an entry for each agent: EnvPool's infos, and the entries that EnvPoolInfos adds. A
    mask of the legal actions in EnvPool's infos becomes the observation "action_mask", beside "obs". In a
    turn-based game, the mask of a player who waits allows the first action only, which has no effect. The
    waiting player stays active, so that rewards during the opponent's turn reach the player's last move. The
    action distribution cannot use a mask of combinations of choices: such a mask is an ordinary observation,
    "joint_action_mask".
    """

    metadata = {"render_modes": ["rgb_array"], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, task_id: str, options: dict[str, Any], render_mode: str | None = None):
        """Reads the spaces of the env; `reset` makes the EnvPool. options: arguments of
        envpool.make_gymnasium besides the seed.

        Raises EnvPool's exceptions for an unknown id or option.
        """
        self._task_id = task_id
        self._options = options if render_mode is None else {**options, "render_mode": render_mode}
        self.render_mode = render_mode
        self._pool: Any = None  # made by `reset`, which has the seed
        # EnvPool gives the bounds of its spaces as float64.
        warnings.filterwarnings("ignore", ".*precision lowered by casting")
        spec: Any = envpool.make_spec(task_id, **options)
        states = spec.state_array_spec
        num_copies = spec.config.num_envs
        shapes = [tuple(part.shape) for key, part in states.items() if key.startswith("obs")]
        has_players = any(shape[:1] == (-1,) for shape in shapes)  # or they share an observation
        self.num_players = spec.config.max_num_players if has_players else 1
        self.num_envs = num_copies * self.num_players
        self._copy_of_agent = np.repeat(np.arange(num_copies, dtype=np.int32), self.num_players)
        self._acting = np.ones(self.num_envs, bool)
        self._action_key, action = list(spec.action_array_spec.items())[-1]
        self._action_dtype = action.dtype
        self._max_episode_steps = spec.config.max_episode_steps
        self._infos = EnvPoolInfos(states, num_copies, self.num_players)
        self.single_action_space = _action_space(spec.gymnasium_action_space)
        self.single_observation_space = _with_true_bounds(spec.gymnasium_observation_space)
        with_joint_mask = _with_joint_mask(self.single_observation_space, self.single_action_space)
        self._has_joint_mask = with_joint_mask is not None
        self.single_observation_space = with_joint_mask or self.single_observation_space
        self._has_mask = f"info:{LEGAL_ACTIONS}" in states
        self._is_turn_based = self._has_mask and self.num_players > 1 and "info:current_player" in states
        if self._has_mask:
            mask = spaces.MultiBinary(states[f"info:{LEGAL_ACTIONS}"].shape[-1])
            parts = {"obs": self.single_observation_space, ACTION_MASK: mask}
            self.single_observation_space = spaces.Dict(parts)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def max_episode_steps(self) -> int | None:
        return self._max_episode_steps if 0 < self._max_episode_steps < NO_LIMIT else None

    def teams(self) -> Sequence[int]:
        """Returns for each agent the index of its copy of the env, as its team number."""
        teams: list[int] = self._copy_of_agent.tolist()
        return teams

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins the first episodes. With a seed, makes a new EnvPool, because an existing one cannot be
        seeded again."""
        if self._pool is None or seed is not None:
            self.close_extras()
            if seed is None:
                seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
            self._pool = envpool.make_gymnasium(self._task_id, seed=seed, **self._options)
        observations, infos = self._pool.reset()
        infos = self._infos.by_agent(infos)
        self._infos.reset(infos)
        return self._observe(observations, infos), infos

    def send(self, actions: np.ndarray) -> None:
        copies = self._copy_of_agent
        if self._is_turn_based:
            actions = actions[self._acting]
            copies = copies[self._acting]
        actions = actions.astype(self._action_dtype, order="C")
        # Given the copy of each player, EnvPool does not search for it in Python, which would take long.
        self._pool.send({self._action_key: actions, "players.env_id": copies})

    def receive(self) -> StepReturn:
        observations, rewards, terminated, truncated, infos = self._pool.recv()
        infos = self._infos.by_agent(infos)
        if self.num_players > 1:
            terminated = terminated[self._copy_of_agent]
            truncated = truncated[self._copy_of_agent]
        terminated = self._infos.add(infos, terminated, truncated)
        return self._observe(observations, infos), rewards, terminated, truncated, infos

    def _observe(self, observations: Any, infos: dict[str, Any]) -> Any:
        """Returns the observations as the space has them, with action masks, and stores which players' turn
        it is. infos: EnvPool's infos by agent, which have the masks."""
        if self._has_joint_mask:
            observations[JOINT_MASK] = observations.pop(ACTION_MASK)
        if not self._has_mask:
            return observations
        mask = infos[LEGAL_ACTIONS]
        if self._is_turn_based:
            self._acting = infos["id"] == infos["current_player"]
            mask = mask.copy()
            mask[~self._acting] = 0
            mask[~self._acting, 0] = 1
        return {"obs": observations, ACTION_MASK: mask}

    def render(self) -> tuple[Picture, ...] | None:
        """Returns the picture of the first copy, as a tuple of one picture; None without a render_mode."""
        if self.render_mode is None:
            return None
        return tuple(self._pool.render())

    def close_extras(self, **kwargs: Any) -> None:
        """Ends EnvPool's threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _with_joint_mask(observation: spaces.Space[Any], action: spaces.Space[Any]) -> spaces.Dict | None:
    """Returns an observation space in which "action_mask" is renamed to "joint_action_mask", if it has an
    entry for each combination of choices of a MultiDiscrete action; None if the space has no such mask."""
    if not isinstance(observation, spaces.Dict) or not isinstance(action, spaces.MultiDiscrete):
        return None
    mask = observation.spaces.get(ACTION_MASK)
    if mask is None or mask.shape == (action.nvec.sum(),):
        return None
    return spaces.Dict({JOINT_MASK if key == ACTION_MASK else key: part for key, part in observation.items()})


def _action_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Returns the action space, with a bounded integer Box converted to a MultiDiscrete."""
    space = _with_true_bounds(space)
    if isinstance(space, spaces.Box) and space.dtype.kind in "iu":
        low = np.asarray(space.low, np.int64)
        return spaces.MultiDiscrete(space.high - low + 1, start=low)
    return space


def _with_true_bounds(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Returns the space with bounds of -inf and inf where EnvPool gives the smallest and the largest number
    of the dtype."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _with_true_bounds(part) for key, part in space.items()})
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    limits = np.finfo(space.dtype)
    low = np.where((space.low == limits.tiny) | (space.low == limits.min), -np.inf, space.low)
    high = np.where(space.high == limits.max, np.inf, space.high)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), space.shape, space.dtype)


class EnvPoolInfos:
    """Adds the results of episodes to EnvPool's infos, under the keys of end_infos.py. All arrays have an
    entry for each agent.

    Atari: `true_objective` is the score of the whole game before clipping, and an episode that ends with a
    lost life has EPISODE_CONTINUES. A game can also end in the frames without an action after a lost life:
    EnvPool then begins the next game without reporting an end, which is recognised by the number of lives.
    Other envs: `episode_extra_stats` are the numbers at the end of the episode, and `success` is whether the
    task was solved at any time in it.
    """

    def __init__(self, states: Mapping[str, Any], num_copies: int, num_players: int):
        """Allocates the scores and lives of all agents. states: `state_array_spec` of EnvPool: key -> spec,
        with the shape, of each array that a step returns."""
        num_agents = num_copies * num_players
        self._num_copies = num_copies
        self._num_players = num_players
        self._has_lives = {"info:lives", "info:terminated", "info:reward"} <= states.keys()
        self._scores = np.zeros(num_agents)  # of the games so far
        self._first_lives = np.zeros(num_agents, int)
        self._continues = np.zeros(num_agents, bool)  # whose game goes on after a lost life in the last step
        self._has_last_life = np.zeros(num_agents, bool)
        self._success_key = next((key for key in SUCCESS if f"info:{key}" in states), None)
        self._has_succeeded = np.zeros(num_agents, bool)
        # The infos that are one number for each agent and describe its episode.
        self._statistics = []
        for key, spec in states.items():
            name = key.removeprefix("info:").removeprefix("players.")
            is_number = key.startswith("info:") and tuple(spec.shape) in ((), (-1,))
            if is_number and name not in SUCCESS and not NO_STATISTIC.match(name):
                self._statistics.append(name)

    def reset(self, infos: Mapping[str, Any]) -> None:
        """Sets the scores of all agents to 0 for their first episodes, and stores their lives. infos:
        EnvPool's, with an entry for each agent."""
        if self._has_lives:
            self._first_lives = infos["lives"].copy()
        self._scores[:] = 0.0
        self._continues = np.zeros_like(self._continues)
        self._has_succeeded[:] = False

    def by_agent(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Converts EnvPool's infos, which have an entry for each copy or player, to one entry for each
        agent."""
        of_players = infos.pop("players")
        for key in NO_INFOS:
            infos.pop(key, None)
            of_players.pop(key, None)
        if self._num_players > 1:
            infos = {
                key: value if len(value) > self._num_copies else value.repeat(self._num_players, axis=0)
                for key, value in infos.items()
            }
        return {**infos, **of_players}

    def add(self, infos: dict[str, Any], terminated: np.ndarray, truncated: np.ndarray) -> np.ndarray:
        """Adds the results of the episodes that ended in a step to the step's `infos`. Returns `terminated`,
        which is also True for games whose end EnvPool did not report."""
        if self._has_lives:
            self._scores += infos["reward"]
            has_all_lives = (infos["lives"] == self._first_lives) & (self._first_lives > 1)
            is_next_game = self._continues & self._has_last_life & has_all_lives
            self._continues = terminated & (infos["terminated"] == 0)
            self._has_last_life = infos["lives"] == 1
            terminated = terminated | is_next_game
        if self._success_key is not None:
            self._has_succeeded |= infos[self._success_key] > 0
        ended = terminated | truncated
        if not ended.any():
            return terminated
        if self._has_lives:
            infos[EPISODE_CONTINUES] = self._continues
            infos["true_objective"] = self._scores.copy()
            self._scores[ended & ~self._continues] = 0.0
        statistics = {key: infos[key].astype(float) for key in self._statistics}
        if self._success_key is not None:
            statistics["success"] = self._has_succeeded.astype(float)
            self._has_succeeded[ended] = False
        if statistics:
            infos["episode_extra_stats"] = statistics
        return terminated
