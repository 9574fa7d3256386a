"""Envs of every form that hand out their own buffers, and keep a ledger of what has really happened.

A Script says what happens to an agent, Habits say how the env hands it out. Both are generated, see
`scripts`, `habits` and `envs`.
"""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from hypothesis import strategies as st
from pettingzoo import ParallelEnv

NUM_ACTIONS = 1000
WRONG = 77.0  # what a buffer holds after the env has overwritten it
OBSERVATION = spaces.Box(-np.inf, np.inf, (2,), np.float32)  # (step of the episode, last action)


class Script(NamedTuple):
    """What happens to an agent. All are cycled.

    lengths: steps of each episode. ends: "terminated", "truncated" or "both". rewards: of each step.
    objective: the key under which the env reports one; None: it reports none. has_stats: nested numbers.
    has_costs: whether each step has one.
    """

    lengths: tuple[int, ...]
    ends: tuple[str, ...]
    rewards: tuple[int, ...]
    objective: str | None
    has_stats: bool
    has_costs: bool = False


class Habits(NamedTuple):
    """How an env hands out what it returns.

    number, flag: the type of rewards and infos, and of terminated and truncated: see NUMBERS and FLAGS.
    reuses: whether it returns the same arrays and dicts each time.
    spoils: in which calls it first clears or overwrites them: "reset", "step".
    """

    number: str
    flag: str
    reuses: bool
    spoils: frozenset[str]
    is_cleared: bool


def tensor(values: Any, dtype: str | None = None) -> Any:
    """Returns a tensor. dtype: by its name in torch."""
    import torch  # not above: most processes that make such an env need no tensors

    return torch.tensor(values, dtype=None if dtype is None else getattr(torch, dtype))


NUMBERS = {
    "float": float,
    "float32": np.float32,
    "array": lambda value: np.array(value, np.float64),
    "array of one": lambda value: np.array([value], np.float32),
    "tensor": lambda value: tensor(value, "float32"),
    "tensor of one": lambda value: tensor([value], "float64"),
}
FLAGS = {
    "bool": bool,
    "bool_": np.bool_,
    "int": int,
    "array": lambda value: np.array(value, bool),
    "array of one": lambda value: np.array([value], bool),
    "tensor": lambda value: tensor(value, "bool"),
}

scripts = st.builds(
    Script,
    st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    st.lists(st.sampled_from(["terminated", "truncated", "both"]), min_size=1, max_size=3).map(tuple),
    st.lists(st.integers(-3, 3), min_size=1, max_size=4).map(tuple),
    st.sampled_from([None, "true_objective", "true_reward"]),
    st.booleans(),
    st.booleans(),
)
habits = st.builds(
    Habits,
    st.sampled_from(sorted(NUMBERS)),
    st.sampled_from(sorted(FLAGS)),
    st.booleans(),
    st.sets(st.sampled_from(["reset", "step"])).map(frozenset),
    st.booleans(),
)


class Step(NamedTuple):
    """A step of an agent. is_cut: truncated and not terminated."""

    action: int
    reward: float
    terminated: bool
    is_cut: bool


class EpisodeEntry(NamedTuple):
    """A whole episode in the ledger."""

    reward: float
    length: int
    objective: float
    stats: dict[str, float]


class Life:
    """One agent by its script. `steps`: all steps so far. `episodes`: those that have ended."""

    def __init__(self, script: Script):
        self.script = script
        self.steps: list[Step] = []
        self.episodes: list[EpisodeEntry] = []
        self._number = -1

    def reset(self) -> dict[str, Any]:
        """Begins an episode. Returns an info of the reset, with values that are wrong for any episode."""
        self._number += 1
        self.step_of_episode = 0
        self._return = self._cost = 0.0
        self.last_action = -1
        costs = {"cost": -WRONG} if self.script.has_costs else {}
        return {"true_objective": -WRONG, "episode_extra_stats": {"total": -WRONG}, **costs}

    def step(self, action: int) -> dict[str, Any]:
        """Acts; returns the info. `steps[-1]` has the rest."""
        script = self.script
        self.last_action = int(action)
        self.step_of_episode += 1
        reward = float(script.rewards[len(self.steps) % len(script.rewards)])
        self._return += reward
        cost = self.step_of_episode + 0.5
        self._cost += cost
        has_ended = self.step_of_episode == script.lengths[self._number % len(script.lengths)]
        end = script.ends[self._number % len(script.ends)] if has_ended else ""
        self.steps.append(Step(int(action), reward, end in ("terminated", "both"), end == "truncated"))
        self.flags = end in ("terminated", "both"), end in ("truncated", "both")
        objective = self._return if script.objective is None else 10 * self._return + 1
        stats = {"total": self._return, "deep/number": float(self._number)} if script.has_stats else {}
        if has_ended:
            reported = {**stats, "cost": self._cost} if script.has_costs else stats
            self.episodes.append(EpisodeEntry(self._return, self.step_of_episode, objective, reported))
        info: dict[str, Any] = {} if script.objective is None else {script.objective: objective}
        if script.has_costs:
            info["cost"] = cost
        if stats:
            info["episode_extra_stats"] = {"total": self._return, "deep": {"number": float(self._number)}}
        return info

    def observation(self) -> np.ndarray:
        return np.array([self.step_of_episode, self.last_action], np.float32)


class Hand:
    """The buffers that an env hands out."""

    def __init__(self, habits: Habits):
        self.habits = habits
        self._kept: dict[str, Any] = {}

    def before(self, call: str) -> None:
        """Spoils all buffers, if the env has that habit."""
        if call not in self.habits.spoils:
            return
        for kept in self._kept.values():
            if not isinstance(kept, dict):
                kept[...] = 0 if self.habits.is_cleared else WRONG
            elif self.habits.is_cleared:
                kept.clear()
            else:
                kept.update({key: WRONG for key, value in kept.items() if not isinstance(value, dict)})

    def array(self, name: str, made: Any) -> Any:
        """Returns an array or a tensor, or the buffer of that name with its values."""
        if not self.habits.reuses or not (isinstance(made, np.ndarray) or type(made).__name__ == "Tensor"):
            return made
        kept = self._kept.setdefault(name, made)
        kept[...] = made
        return kept

    def number(self, name: str, value: float) -> Any:
        return self.array(name, NUMBERS[self.habits.number](value))

    def flag(self, name: str, value: bool) -> Any:
        return self.array(name, FLAGS[self.habits.flag](value))

    def mapping(self, name: str, values: dict[Any, Any]) -> dict[Any, Any]:
        if not self.habits.reuses:
            return values
        kept = self._kept.setdefault(name, {})
        kept.clear()
        kept.update(values)
        return kept

    def info(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        """Returns a nested dict with numbers as the env has them."""
        own = {
            key: self.info(f"{name}/{key}", value)
            if isinstance(value, dict)
            else self.number(f"{name}/{key}", value)
            for key, value in values.items()
        }
        return self.mapping(name, own)

    def outcome(self, life: Life, info: dict[str, Any], name: str = "") -> tuple[Any, ...]:
        """Returns what `step` returns for one agent."""
        return (
            self.array(f"{name}observation", life.observation()),
            self.number(f"{name}reward", life.steps[-1].reward),
            *(self.flag(f"{name}{end}", flag) for end, flag in zip(("terminated", "truncated"), life.flags)),
            self.info(f"{name}info", info),
        )


class Single(gym.Env):
    """An env of Gymnasium."""

    observation_space = OBSERVATION
    action_space = spaces.Discrete(NUM_ACTIONS)

    def __init__(self, script: Script, habits: Habits):
        self.lives = [Life(script)]
        self._hand = Hand(habits)

    def reset(self, *, seed=None, options=None):
        self._hand.before("reset")
        info = self.lives[0].reset()
        return self._hand.array("observation", self.lives[0].observation()), self._hand.info("info", info)

    def step(self, action):
        self._hand.before("step")
        return self._hand.outcome(self.lives[0], self.lives[0].step(action))


class OldGym:
    """An env of the old gym package: four values, and `done`."""

    observation_space = OBSERVATION
    action_space = spaces.Discrete(NUM_ACTIONS)

    def __init__(self, script: Script, habits: Habits):
        self._env = Single(script, habits)
        self.lives = self._env.lives

    def reset(self):
        return self._env.reset()[0]

    def step(self, action):
        observation, reward, terminated, truncated, info = self._env.step(action)
        if self.lives[0].steps[-1].is_cut:
            info["TimeLimit.truncated"] = truncated
        return observation, reward, terminated if bool(terminated) else truncated, info


class Lists:
    """A multi-agent env in the style of versions 1 and 2: lists, and agents that it resets itself."""

    is_multiagent = True
    observation_space = OBSERVATION
    action_space = spaces.Discrete(NUM_ACTIONS)

    def __init__(self, scripts_of_agents: list[Script], habits: Habits):
        self.lives = [Life(script) for script in scripts_of_agents]
        self.num_agents = len(self.lives)
        self._hand = Hand(habits)

    def reset(self, seed=None, options=None):
        self._hand.before("reset")
        infos = [life.reset() for life in self.lives]
        return [life.observation() for life in self.lives], [{"note": len(info)} for info in infos]

    def step(self, actions):
        self._hand.before("step")
        outcomes = []
        for agent, (life, action) in enumerate(zip(self.lives, actions)):
            outcome = self._hand.outcome(life, life.step(action), f"{agent} ")
            if any(life.flags):
                life.reset()
                outcome = self._hand.array(f"{agent} observation", life.observation()), *outcome[1:]
            outcomes.append(outcome)
        return tuple(map(list, zip(*outcomes)))


class Parallel(ParallelEnv):
    """An env of PettingZoo whose agents leave when their episodes end."""

    metadata = {"name": "ledger_v0"}

    def __init__(self, scripts_of_agents: list[Script], habits: Habits):
        self.lives = [Life(script) for script in scripts_of_agents]
        self.possible_agents = [f"agent {i}" for i in range(len(self.lives))]
        self._life_of = dict(zip(self.possible_agents, self.lives))
        self._hand = Hand(habits)

    def observation_space(self, agent):
        return OBSERVATION

    def action_space(self, agent):
        return spaces.Discrete(NUM_ACTIONS)

    def reset(self, seed=None, options=None):
        self._hand.before("reset")
        self.agents = list(self.possible_agents)
        infos = {
            agent: self._hand.info(f"{agent}info", self._life_of[agent].reset()) for agent in self.agents
        }
        observations = {agent: self._life_of[agent].observation() for agent in self.agents}
        return self._hand.mapping("observations", observations), self._hand.mapping("infos", infos)

    def step(self, actions):
        self._hand.before("step")
        outcomes = {
            agent: self._hand.outcome(self._life_of[agent], self._life_of[agent].step(action), agent)
            for agent, action in actions.items()
        }
        self.agents = [agent for agent in self.agents if not any(self._life_of[agent].flags)]
        names = ("observations", "rewards", "terminated", "truncated", "infos")
        return tuple(
            self._hand.mapping(name, {agent: outcome[i] for agent, outcome in outcomes.items()})
            for i, name in enumerate(names)
        )


class Resets(NamedTuple):
    """How a VectorEnv resets. declared: in its metadata. final: names of its final infos, see Vector."""

    mode: AutoresetMode
    declared: Any
    final: str


class Vector(gym.vector.VectorEnv):
    """A VectorEnv.

    resets.final: "final_info" with arrays, "dicts": with an array of dicts, both beside final_obs;
    "final_observation": of Gymnasium 0.29 beside an array of dicts; "": none, the infos are of the step.
    """

    single_observation_space = OBSERVATION
    single_action_space = spaces.Discrete(NUM_ACTIONS)

    def __init__(self, scripts_of_agents: list[Script], habits: Habits, resets: Resets):
        self.lives = [Life(script) for script in scripts_of_agents]
        self.num_envs = len(self.lives)
        self.resets = resets
        self.metadata = {} if resets.declared is None else {"autoreset_mode": resets.declared}
        self._hand = Hand(habits)
        self._waits = np.zeros(self.num_envs, bool)  # NEXT_STEP: for the reset

    def reset(self, *, seed=None, options=None):
        self._hand.before("reset")
        mask = np.ones(self.num_envs, bool) if options is None else options["reset_mask"]
        infos = [life.reset() if resets else {} for life, resets in zip(self.lives, mask)]
        return self._observations(), self._infos(infos)

    def step(self, actions):
        self._hand.before("step")
        waited = self._waits.copy()
        pairs = list(zip(self.lives, np.asarray(actions), waited))
        infos = [life.reset() if waits else life.step(action) for life, action, waits in pairs]
        rewards = [0.0 if waits else life.steps[-1].reward for life, _, waits in pairs]
        flags = [(False, False) if waits else life.flags for life, _, waits in pairs]
        ended = np.any(flags, axis=1)
        final = {}
        if self.resets.mode == AutoresetMode.NEXT_STEP:
            self._waits = ended
        elif self.resets.mode == AutoresetMode.SAME_STEP and ended.any():
            final = self._final(infos, ended)
            resets = [life.reset() if has_ended else {} for life, has_ended in zip(self.lives, ended)]
            if self.resets.final:
                infos = [reset if has else info for reset, info, has in zip(resets, infos, ended)]
        make = tensor if "tensor" in self._hand.habits.number else np.array
        return (
            self._observations(),
            self._hand.array("rewards", make(rewards)),
            *(self._hand.array(f"ends {i}", make([pair[i] for pair in flags])) for i in (0, 1)),
            self._hand.mapping("infos", {**self._infos(infos), **final}),
        )

    def _observations(self):
        return self._hand.array("observations", np.stack([life.observation() for life in self.lives]))

    def _final(self, infos, ended):
        if not self.resets.final:
            return {}
        observations = "final_observation" if self.resets.final == "final_observation" else "final_obs"
        own = [info if has_ended else {} for info, has_ended in zip(infos, ended)]
        values = np.empty(self.num_envs, object)
        for agent in np.flatnonzero(ended):
            values[agent] = self._hand.info(f"final {agent}", own[agent])
        if self.resets.final == "final_info":
            values = self._infos(own, "final ")
        seen = np.array([life.observation() for life in self.lives] + [None], object)[:-1]
        return {
            "final_info": values,
            "_final_info": ended.copy(),
            observations: seen,
            f"_{observations}": ended.copy(),
        }

    def _infos(self, infos, name=""):
        """Returns the infos of all agents as a dict of arrays with masks, as Gymnasium's."""
        batch = {}
        for key in dict.fromkeys(key for info in infos for key in info):
            has = np.array([key in info for info in infos])
            parts = [info.get(key) for info in infos]
            if any(isinstance(part, dict) for part in parts):
                batch[key] = self._infos([part or {} for part in parts], f"{name}{key}/")
            else:
                values = np.array([0.0 if part is None else part for part in parts])
                batch[key] = self._hand.array(f"{name}{key}", values)
            batch[f"_{key}"] = self._hand.array(f"{name}_{key}", has)
        return self._hand.mapping(f"{name}batch", batch)


resets = st.tuples(
    st.sampled_from(list(AutoresetMode)),
    st.sampled_from(["final_info", "dicts", "final_observation", ""]),
).flatmap(
    lambda drawn: st.builds(
        Resets, st.just(drawn[0]), st.sampled_from([drawn[0], drawn[0].value]), st.just(drawn[1])
    )
)
several = st.lists(scripts, min_size=1, max_size=3).map(
    lambda drawn: [script._replace(has_costs=drawn[0].has_costs) for script in drawn]
)
envs = st.one_of(
    st.builds(lambda script, habits: lambda: Single(script, habits), scripts, habits),
    st.builds(lambda script, habits: lambda: OldGym(script, habits), scripts, habits),
    st.builds(lambda scripts, habits: lambda: Lists(scripts, habits), several, habits),
    st.builds(lambda scripts, habits: lambda: Parallel(scripts, habits), several, habits),
    st.builds(
        lambda scripts, habits, resets: lambda: Vector(scripts, habits, resets), several, habits, resets
    ),
)
