"""Batched simulators of the forms whose packages cannot be run here, in a few lines of torch each, that keep
a ledger and hand out their own buffers. tests/conformance/simulators runs real packages."""

from collections import UserDict
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from hypothesis import strategies as st

from tests.envs.ledger_envs import WRONG, Habits, Hand, Life, Script, habits, several

BOX = spaces.Box(-1000, 1000, (1,), np.float32)
LIMIT = 50


class Form(NamedTuple):
    """What the `step` of a simulator returns, and when it resets.

    groups: names of the observations of the actor and of the critic; None: no dict.
    num_values: 4, with `done` for both ends, or 5. column: numbers have the shape [N, 1].
    done: dtype of ends. time_outs: key in the infos; None: it is not in them.
    age: name of the counter of steps; None: it has none.
    starts_with: the methods that return the first observations.
    resets_late: in the step after the end, as Isaac Gym; `reset` then resets nothing.
    critic: where its observations are: in the "groups", in the infos ("infos"), or "second" of the values;
        "none": the second value is None.
    """

    groups: tuple[str, ...] | None
    num_values: int
    done: torch.dtype
    time_outs: str | None
    age: str | None
    starts_with: tuple[str, ...]
    column: bool = False
    resets_late: bool = False
    critic: str = "groups"


FORMS = {
    "rsl_rl": Form(
        ("policy", "critic"), 4, torch.int64, "time_outs", "episode_length_buf", ("get_observations",)
    ),
    "Isaac Lab": Form(("policy", "critic"), 5, torch.bool, None, "episode_length_buf", ("reset",)),
    "Isaac Gym": Form(
        ("obs", "states"), 4, torch.int64, "time_outs", "progress_buf", ("reset",), resets_late=True
    ),
    "skrl": Form(None, 5, torch.int64, "time_outs", None, ("reset",), column=True),
    "skrl, Isaac Lab": Form(None, 5, torch.bool, None, "episode_length_buf", ("reset",), column=True),
    "rsl_rl 2": Form(
        ("policy", "critic"),
        4,
        torch.int64,
        "time_outs",
        "episode_length_buf",
        ("reset", "get_observations"),
        critic="infos",
    ),
    "legged_gym": Form(
        ("policy", "critic"), 5, torch.bool, "time_outs", "episode_length_buf", ("reset",), critic="second"
    ),
    "legged_gym, blind": Form(
        None, 5, torch.bool, "time_outs", "episode_length_buf", ("reset", "get_observations"), critic="none"
    ),
}


class Simulator:
    """A simulator whose copies live by scripts. The observation is (step of the episode, last action); the
    critic's one has a third number, 7."""

    def __init__(self, scripts_of_copies: list[Script], habits: Habits, form: Form):
        first = scripts_of_copies[0]
        common = {"objective": first.objective, "has_stats": first.has_stats, "has_costs": first.has_costs}
        own = [script._replace(**common) for script in scripts_of_copies]
        self.lives = [Life(script) for script in own]
        self.num_envs = len(own)
        self.num_starts = 0
        self.seeds: list[int | None] = []
        self.log: dict[str, Any] = {}
        self.max_episode_length = LIMIT
        self._form = form
        self._hand = Hand(habits)
        self._waits = np.full(self.num_envs, form.resets_late)
        if "get_observations" not in form.starts_with:  # else it is a VecEnv of rsl_rl
            self.metadata = {"autoreset_mode": "NextStep" if form.resets_late else "SameStep"}
        if form.resets_late:
            self.reset_buf = torch.ones(self.num_envs)
        if form.age is not None:
            setattr(self, form.age, torch.zeros(self.num_envs, dtype=torch.int64))
        for method in form.starts_with:
            setattr(self, method, getattr(self, f"_{method}"))

    def _reset(self):
        return self._begin()

    def _get_observations(self):
        return self._begin()

    def _begin(self):
        self.num_starts += 1
        self._hand.before("reset")
        if self._form.resets_late:
            return self._observations(np.zeros((self.num_envs, 2)))
        for life in self.lives:
            life.reset()
        return self._observations()

    def _observations(self, seen=None):
        if seen is None:
            seen = np.stack([life.observation() for life in self.lives])
        own = self._tensor("actor", seen)
        if self._form.groups is None:
            return own
        critics = self._tensor("critic", np.column_stack([seen, np.full(self.num_envs, 7)]))
        groups = dict(zip(self._form.groups, (own, critics)))
        if self._form.critic == "second":
            return own, critics
        # As a TensorDict, a Mapping.
        return UserDict(groups) if self._form.num_values == 4 and self._form.critic == "groups" else groups

    def _tensor(self, name: str, values: Any, dtype: torch.dtype = torch.float32) -> Any:
        return self._hand.array(name, torch.tensor(np.asarray(values)).to(dtype))

    def _numbers(self, name: str, values: Any, dtype: torch.dtype = torch.float32) -> Any:
        tensor = self._tensor(name, values, dtype)
        return tensor[:, None] if self._form.column else tensor

    def step(self, actions):
        assert isinstance(actions, torch.Tensor) and actions.shape == (self.num_envs, 1)
        form = self._form
        self._hand.before("step")
        waited = self._waits
        pairs = list(zip(self.lives, actions[:, 0].tolist(), waited))
        infos = [life.reset() and {} if waits else life.step(round(action)) for life, action, waits in pairs]
        rewards = [WRONG if waits else life.steps[-1].reward for life, _, waits in pairs]
        ends = np.array([(False, False) if waits else life.flags for life, _, waits in pairs])
        cut = np.array([not waits and life.steps[-1].is_cut for life, _, waits in pairs])
        done = ends.any(axis=1)
        extras = self._infos("infos", infos)
        if form.resets_late:
            self._waits = done
        else:
            for life, has_ended in zip(self.lives, done):
                if has_ended:
                    life.reset()
        if form.age is not None:
            getattr(self, form.age)[:] = torch.tensor([life.step_of_episode for life in self.lives])
        if form.time_outs is not None:
            extras[form.time_outs] = self._numbers("time_outs", cut, form.done)
        extras["log"] = self.log
        extras["first_obs"] = torch.full((self.num_envs, 5), WRONG)
        first, second = (done, cut) if form.time_outs is not None else ends.T
        flags = [self._numbers(f"end {i}", values, form.done) for i, values in enumerate((first, second))]
        observations = self._observations()
        if form.critic == "infos":
            extras["observations"] = observations
            observations = observations["policy"]
        before = {"second": observations, "none": (observations, None)}.get(form.critic, (observations,))
        values = flags[: form.num_values - 2 - len(before)]
        return *before, self._numbers("rewards", rewards), *values, extras

    def _infos(self, name: str, infos: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the infos of all copies as a dict of tensors; copies that were reset have zeros."""
        batch: dict[str, Any] = {}
        for key in dict.fromkeys(key for info in infos for key in info):
            parts = [info.get(key, 0.0) for info in infos]
            if any(isinstance(part, dict) for part in parts):
                batch[key] = self._infos(f"{name}/{key}", [part or {} for part in parts])
            else:
                batch[key] = self._numbers(f"{name}/{key}", parts)
        return self._hand.mapping(name, batch)

    def close(self):
        pass


class RslRl(Simulator):
    num_actions = 1
    cfg: Any = {}
    device = "cpu"


class IsaacLab(Simulator, gym.Env):
    is_vector_env = True
    single_observation_space = spaces.Dict(
        policy=spaces.Box(-np.inf, np.inf, (2,)), critic=spaces.Box(-np.inf, np.inf, (3,))
    )
    single_action_space = BOX

    def __init__(self, *args):
        super().__init__(*args)
        self.action_space = gym.vector.utils.batch_space(BOX, self.num_envs)

    def _reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return self._begin(), {}


class RslRl2(RslRl):
    """Its `reset` may return no critic's observations, which rsl_rl reads afterwards."""

    def _reset(self):
        return self._begin()["policy"], None

    def _get_observations(self):
        observations = self._observations()
        return observations["policy"], {"observations": observations}


class LeggedGym(RslRl):
    num_privileged_obs = 3


class BlindLeggedGym(RslRl):
    num_privileged_obs = None

    def _reset(self):
        return self._begin(), None

    def _get_observations(self):
        return self._observations()


class IsaacGym(Simulator):
    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = BOX
    num_agents = 1


class Skrl(Simulator):
    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = BOX

    def _reset(self):
        return self._begin(), {}


class SkrlIsaacLab(Simulator):
    """Like skrl's wrapper of Isaac Lab: it declares the groups of the env within it, but returns only the
    observations for the actor."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    single_observation_space = IsaacLab.single_observation_space
    action_space = BOX

    def _reset(self):
        return self._begin(), {}


CLASSES = {
    "rsl_rl": RslRl,
    "rsl_rl 2": RslRl2,
    "legged_gym": LeggedGym,
    "legged_gym, blind": BlindLeggedGym,
    "Isaac Lab": IsaacLab,
    "Isaac Gym": IsaacGym,
    "skrl": Skrl,
    "skrl, Isaac Lab": SkrlIsaacLab,
}


def make(name: str, scripts: list[Script], habits: Habits) -> Simulator:
    """Returns a simulator of a form."""
    return CLASSES[name](scripts, habits, FORMS[name])


class ManiSkill(gym.vector.VectorEnv):
    """A VectorEnv of torch that resets in the same step."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    single_observation_space = spaces.Box(-np.inf, np.inf, (2,))
    single_action_space = BOX
    device = torch.device("cpu")

    def __init__(self, scripts_of_copies: list[Script], habits: Habits):
        self._simulator = Simulator(
            scripts_of_copies, habits, FORMS["Isaac Lab"]._replace(groups=None, age=None)
        )
        self.num_envs = self._simulator.num_envs
        self.lives = self._simulator.lives

    def reset(self, *, seed=None, options=None):
        return self._simulator.reset(), {}

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self._simulator.step(actions)
        ended = terminated | truncated
        if not ended.any():
            return observations, rewards, terminated, truncated, infos
        del infos["log"]
        wrong = {"true_objective": torch.full((self.num_envs,), -WRONG)}  # of the reset
        final = {"final_info": infos, "final_observation": torch.zeros(self.num_envs, 2)}
        masks = {f"_{key}": ended.clone() for key in final}
        return observations, rewards, terminated, truncated, {**wrong, **final, **masks}


simulators = st.one_of(
    st.builds(
        lambda name, scripts, habits: lambda: make(name, scripts, habits),
        st.sampled_from(sorted(FORMS)),
        several,
        habits,
    ),
    st.builds(lambda scripts, habits: lambda: ManiSkill(scripts, habits), several, habits),
)


class TorchCrowd:
    """`tests.counting.CountingEnv` as a simulator of torch in the form of rsl_rl: episode e of copy a lasts
    3 + (e + a) % 5 steps, every second one is cut by a time limit, and the reward is the step."""

    device = "cpu"
    max_episode_length = LIMIT

    def __init__(self, num_envs: int = 8, device: str = "cpu"):
        self.num_envs = num_envs
        self.action_space = spaces.Discrete(1000)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        self._episodes = torch.zeros(num_envs, dtype=torch.int64)
        self._buffer = torch.zeros(num_envs, 4)

    def get_observations(self):
        return self._observe(torch.full((self.num_envs,), -1))

    def step(self, actions):
        copies = torch.arange(self.num_envs)
        self.episode_length_buf += 1
        rewards = self.episode_length_buf.float()
        done = self.episode_length_buf >= 3 + (self._episodes + copies) % 5
        time_outs = done & (self._episodes % 2 == 1)
        self._episodes += done
        self.episode_length_buf[done] = 0
        return self._observe(actions), rewards, done.long(), {"time_outs": time_outs}

    def _observe(self, actions):
        columns = [torch.zeros(self.num_envs), self._episodes, self.episode_length_buf, actions]
        self._buffer[:] = torch.stack([column.float() for column in columns], dim=1)
        return {"obs": self._buffer}
