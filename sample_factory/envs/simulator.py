"""What a batched simulator is: the contract between a user's simulator and the framework."""

from collections.abc import Mapping
from typing import Any, Protocol

from gymnasium import spaces
from gymnasium.vector import AutoresetMode


class Simulator(Protocol):
    """Steps N envs in one call, and resets each of them itself. Robotics packages have such envs.

    No inheritance is needed, only `num_envs`, `metadata`, `step` and `reset`, and one of the attributes for
    actions. Arrays are of NumPy, torch or JAX, on any device; where the first observations are tensors of
    torch, actions are tensors on their device.

    Example, which observes how long the current episode of each env is:

        class Waiting:
            num_envs = 64
            metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
            single_action_space = spaces.Discrete(2)

            def reset(self):
                self.ages = torch.zeros(self.num_envs)
                return self.ages[:, None]

            def step(self, actions):  # [64]
                self.ages += 1
                time_outs = self.ages >= 100
                done = time_outs | (torch.rand(self.num_envs) < 0.01 * actions)
                self.ages[done] = 0
                return self.ages[:, None], -actions, done, {"time_outs": time_outs}

    **The VecEnv of rsl_rl** is a simulator as well: an object with `get_observations` and
    `episode_length_buf`, which needs no `metadata`. `get_observations` returns the first observations, after
    a call of `reset` if there is one. Steps return 4 values. Version 2 of rsl_rl returns the critic's
    observations separately, as infos["observations"]["critic"].

    num_envs: N.
    metadata: its entry "autoreset_mode" says when an env is reset. SAME_STEP: in the step that ends its
        episode; the step returns the first observation of the next episode. NEXT_STEP: in the following step;
        its action, reward and ends are ignored. Not needed for a package with a row in conventions.py.
    single_action_space: the actions of one env; a space of Gymnasium or gym, or an object with shape, low and
        high. Else `action_space`, also of one env, or `num_actions`: this many numbers without bounds.
    single_observation_space: optional, the observation of one env, as is `observation_space`. Only its
        Discrete and MultiDiscrete parts are used; otherwise the first observations decide: uint8 arrays are
        pictures, 0 to 255, and all others numbers without bounds.
    episode_length_buf: optional, the steps of each current episode, [N]. At the start of a training, it is
        set to random numbers below `max_episode_length`, so that episodes do not all end together.
    cfg: optional. If `cfg.is_finite_horizon` is true, time limits terminate.
    """

    num_envs: int
    metadata: Mapping[str, AutoresetMode | Any]
    single_action_space: spaces.Space[Any]

    def reset(self) -> Any:
        """Resets all envs. Called twice before the first step: when the env is made, and then with a seed if
        there is a parameter `seed`, or a method `seed(seed)` to call before.

        Returns an array [N, ...], or a (nested) dict of such arrays. Groups of observations have names of
        their own, as "policy" and "critic". It may return infos beside these, as Gymnasium does.
        """

    def step(self, actions: Any) -> Any:
        """Acts in each env. actions: a batch of the action space, [N, ...].

        Returns (observations, rewards, done, infos) or, as Gymnasium, (observations, rewards, terminated,
        truncated, infos). Rewards and ends are numbers of any dtype, [N] or [N, 1]; ends are 0 or 1.

        `done` includes the episodes that a time limit has cut. The infos mark these by an array [N] under the
        key "time_outs", "truncation" or "TimeLimit.truncated". A marked end counts as truncated.

        Further entries of the infos with a number for each env, [N] or [N, 1], become entries of the infos of
        the episodes that end in the step. Entries of the dicts "log", "episode" and "episode_metrics" become
        further statistics of these episodes; an array of another shape counts as its mean.
        """
