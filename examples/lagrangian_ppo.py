"""PPO that keeps the mean cost of an episode below a limit, with a Lagrange multiplier (Ray et al. 2019).

    python examples/lagrangian_ppo.py train --experiment=cliff --cost_limit=0.1
    python examples/lagrangian_ppo.py train --experiment=cliff_ppo --algo=APPO
    python examples/lagrangian_ppo.py enjoy --experiment=cliff

Any env with `info["cost"]` will do, or Doom: --env=doom_battle --doom_cost HEALTH=0/1 --algo=PPO_LAGRANGIAN.
TensorBoard: 0_aux/avg_cost, train/cost_multiplier, train/mean_cost.

The cliff after 200,000 frames, three seeds: reward -15.2 (-15.5 to -15.0) and cost 0.00, in the first 50,000
frames up to 1. APPO falls at once: reward -1, cost 1. The way along the edge is 13 steps long.
Doom, level 1 of HASARD's PrecipicePlunge (reward: the way down; cost: health lost), --cost_limit=50
--multiplier_rate=0.2 --cost_window=50, 400,000 frames, three seeds: cost 52 (33 to 63), reward 32 (20 to 42).
APPO: cost 473 (461 to 480), reward 242 (all three).
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
import torch
from torch import Tensor, nn

from sample_factory import register_algorithm, register_env
from sample_factory.algo.losses import masked_mean, normalize_advantages
from sample_factory.config.flags import flag
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.enjoy import main as enjoy
from sample_factory.learning.algorithms.algorithm import Evaluation, Losses, SGDStep
from sample_factory.learning.algorithms.ppo import PPO
from sample_factory.learning.algorithms.targets import Targets
from sample_factory.learning.batch import Batch
from sample_factory.train import main as train

ADVANTAGES, RETURNS = "cost_advantages", "cost_returns"
MIN_STD = 0.1  # of cost advantages, in limits: smaller ones are noise of the critic


@dataclass(frozen=True)
class LagrangianFlags(LearningFlags):
    """Batches, losses, optimizer, and the limit of costs."""

    cost_limit: float = flag(25.0, "limit of the mean cost of an episode", above=0)
    multiplier_start: float = flag(1.0, "the multiplier at the start", at_least=0)
    multiplier_rate: float = flag(0.05, "most that the multiplier changes by in an iteration", above=0)
    cost_window: int = flag(100, "number of episodes over which the mean cost is taken", at_least=1)


class CostModule(nn.Module):
    """What is trained and saved beside the network.

    critic: from the output of the actor's core to the costs that are to come, in limits.
    multiplier: how much costs weigh against rewards. sums: costs and ended episodes, decaying.
    """

    def __init__(self, size: int, multiplier: float):
        super().__init__()
        self.critic = nn.Linear(size, 1)
        self.register_buffer("multiplier", torch.tensor(multiplier))
        self.register_buffer("sums", torch.zeros(2))

    @property
    def mean_cost(self) -> Tensor:
        """Mean cost of an episode, a scalar; 0 before the first one has ended."""
        costs, episodes = self.sums
        return costs / episodes if episodes else torch.zeros_like(costs)


class LagrangianPPO(PPO):
    """PPO with the advantages (A_reward - m * A_cost) / (1 + m), each normalised, for the multiplier m."""

    fixes_targets = False  # each SGD step estimates costs with its own evaluation

    def __init__(self, flags: LagrangianFlags, policy, rng):
        super().__init__(flags, policy, rng)
        core = policy.model.each_tower()[0].core
        self._costs = CostModule(core.out_size, flags.multiplier_start).to(policy.device)

    @property
    def modules(self):
        return {"costs": self._costs, **super().modules}

    def earlier_batches(self, batch: Batch):
        """Updates the mean cost and the multiplier, once for each new batch."""
        ended = ((batch.terminated | batch.truncated) & batch.own).sum()
        new = self._total(torch.stack((batch.costs.sum(), ended)))
        # Costs of episodes that have not ended yet count for the next one that does.
        kept = 1 - (new[1] / self._flags.cost_window).clamp(max=1)
        self._costs.sums.mul_(kept).add_(new)
        if self._costs.sums[1]:
            excess = (self._costs.mean_cost / self._flags.cost_limit - 1).clamp(-1, 1)
            self._costs.multiplier.add_(self._flags.multiplier_rate * excess).clamp_(min=0)
        return super().earlier_batches(batch)

    def _cost_values(self, evaluation: Evaluation) -> Tensor:
        """Returns estimates of the costs to come, [T+1, B], in limits."""
        return self._costs.critic(evaluation.unrolled.beliefs.float()).squeeze(-1)

    def targets(self, batch: Batch, evaluation: Evaluation) -> Targets:
        targets = super().targets(batch, evaluation)
        of_costs = batch._replace(rewards=batch.costs / self._flags.cost_limit)
        costs = self.targets_of(of_costs, self._cost_values(evaluation).detach(), evaluation)
        return targets._replace(extra={ADVANTAGES: costs.advantages, RETURNS: costs.returns})

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        valid, multiplier = minibatch.own, self._costs.multiplier
        rewards = normalize_advantages(targets.advantages, valid, total=self._total)
        costs = normalize_advantages(targets.extra[ADVANTAGES], valid, MIN_STD, self._total)
        mixed = (rewards - multiplier * costs) / (1 + multiplier)
        losses = super().losses(minibatch, evaluation, targets._replace(advantages=mixed))
        errors = nn.functional.huber_loss(
            self._cost_values(evaluation)[:-1], targets.extra[RETURNS], reduction="none"
        )
        critic = self._flags.value_loss_coeff * masked_mean(errors, valid)
        return losses._replace(terms={**losses.terms, "cost_critic": critic})

    def own_summaries(self, step: SGDStep) -> dict[str, Tensor]:
        own = {"cost_multiplier": self._costs.multiplier, "mean_cost": self._costs.mean_cost}
        return {**super().own_summaries(step), **own}


class Cliff(gym.Wrapper):
    """Gymnasium's cliff, where each step gets -1, and a step off the cliff costs 1 and ends the episode."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        is_fall = reward < -1
        return observation, -1.0, terminated or is_fall, truncated, {**info, "cost": float(is_fall)}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    sizes = {"num_envs_per_worker": 32, "rollout": 16, "batch_size": 1024, "train_for_env_steps": 200_000}
    # The entropy bonus: without it, all actions jump before the multiplier has an effect.
    learning = {"algo": "PPO_LAGRANGIAN", "learning_rate": 1e-3, "exploration_loss_coeff": 0.03}
    register_algorithm("PPO_LAGRANGIAN", LagrangianPPO, flags=LagrangianFlags, needs_costs=True)
    register_env(
        "my_cliff",
        lambda name: Cliff(gym.make("CliffWalking-v1", max_episode_steps=100)),
        defaults={**sizes, **learning},
    )
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]](["--env=my_cliff", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
