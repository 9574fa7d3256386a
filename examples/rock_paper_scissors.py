"""Self-play in a game without a best move: rock, paper, scissors.

    python examples/rock_paper_scissors.py train --experiment=past --selfplay_past_share=0.8
    python examples/rock_paper_scissors.py strategies --experiment=past
    python examples/rock_paper_scissors.py train --experiment=alone --save_milestones_sec=1
    python examples/rock_paper_scissors.py strategies --experiment=alone

Whatever a player prefers, another move beats it, so that copies of one policy chase each other in circles.
Playing against past selves too, a policy has to hold its own against all that it has been. `strategies` shows
what the policy played in the course of training, and what the best answer to that wins.
"""

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.checkpoints.milestones import env_frames_of, milestones_of
from sample_factory.config.config import Config, ConfigError, parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.train import main as train

ENV = "rps_duel"
MOVES = ("rock", "paper", "scissors")
ROUNDS = 10  # in an episode


# [own move, other's move]: what the player gets in a round.
PAYOFFS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def exploitability(strategy: np.ndarray) -> float:
    """What the best answer to the chances of the three moves, [3], wins per round: 0 at the equilibrium, a
    third each, and 1 for a player who always does the same.
    """
    return float((PAYOFFS @ strategy).max())


class RockPaperScissors:
    """Two players who see nothing. Action: rock, paper, or scissors. Reward: what the round was worth."""

    num_agents = 2
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self._round = 0
        return self._observations(), [{}, {}]

    def step(self, actions: list[int]):
        first = float(PAYOFFS[actions[0], actions[1]])
        self._round = (self._round + 1) % ROUNDS
        is_over = self._round == 0
        return self._observations(), [first, -first], [is_over] * 2, [False] * 2, [{}, {}]

    def render(self) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        """There is nothing to free."""

    def _observations(self) -> list[np.ndarray]:
        return [np.zeros(1, np.float32)] * 2


def make_env(full_env_name: str) -> RockPaperScissors:
    """In a rollout worker: one env."""
    return RockPaperScissors()


DEFAULTS = {
    "encoder_mlp_layers": (16,),
    "hidden_size": 16,
    "use_rnn": False,
    "gamma": 0.0,  # rounds have nothing to do with each other
    "exploration_loss_coeff": 0.25,  # moves that are never played are never learned about
    "learning_rate": 0.01,
    "rollout": ROUNDS,
    "batch_size": 320,
    "num_workers": 1,
    "num_envs_per_worker": 32,
    "worker_num_splits": 1,
    "selfplay_snapshot_env_steps": 2000,
    "selfplay_max_opponents": 10,
    "train_for_env_steps": 100_000,
}


def strategies(argv: list[str]) -> int:
    """Prints what the milestones of --policy_index play, and by how much that can be exploited."""
    try:
        config = parse_config(argv, resolve_family, evaluation=True)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    milestones = milestones_of(config.experiment_dir, config.evaluation.policy_index[0])
    if len(milestones) < 2:
        print(f"error: fewer than 2 milestones in {config.experiment_dir}", file=sys.stderr)
        return 2
    played = np.array([strategy_of(path, config) for path in milestones])
    for path, strategy in zip(milestones, played):
        print(describe(f"{env_frames_of(path):>9,} frames", strategy))
    late = played[len(played) // 2 :]
    mean = np.mean([exploitability(strategy) for strategy in late])
    print(f"mean exploitability in the second half: {mean:.3f}")
    print(describe("mean of the second half", late.mean(axis=0)))
    return 0


def strategy_of(milestone: Path, config: Config) -> np.ndarray:
    """The chances of the three moves."""
    import torch

    from sample_factory.checkpoints.file_format import read_state

    spaces = gym.spaces.Dict(obs=RockPaperScissors.observation_space), RockPaperScissors.action_space
    spec = PolicySpec(config.model, *spaces, config.learning.normalize_returns, "cpu", "fp32")
    model = spec.build().model
    model.load_state_dict(read_state(milestone)["model"])
    output = model.act({"obs": torch.zeros(1, 1)}, torch.zeros(1, model.state_size))
    return output.logits[0].softmax(dim=0).double().numpy()


def describe(name: str, strategy: np.ndarray) -> str:
    """A line for people."""
    moves = ", ".join(f"{move} {chance:.2f}" for move, chance in zip(MOVES, strategy))
    return f"{name}: {moves}; exploitability {exploitability(strategy):.3f}"


def main(argv: list[str]) -> int:
    """`train` or `strategies`, then flags."""
    register_env("rps_", make_env, defaults=DEFAULTS)
    commands = {"train": train, "strategies": strategies}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|strategies --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
