"""Trains by self-play in a game without a best move: rock, paper, scissors.

    python examples/rock_paper_scissors.py train --experiment=past --selfplay_past_share=0.8
    python examples/rock_paper_scissors.py strategies --experiment=past
    python examples/rock_paper_scissors.py train --experiment=alone --save_milestones_sec=1
    python examples/rock_paper_scissors.py strategies --experiment=alone
    python examples/rock_paper_scissors.py match --experiment=past --opponent_experiment=alone

Every move is beaten by another one, so a policy that plays only against itself moves in circles. One that
also plays against its past selves has to do well against all of them. `strategies` prints the policy's
strategy at each milestone, and how much the best answer to it wins; `match` lets the two policies play.
"""

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.__main__ import command
from sample_factory.checkpoints.milestones import find_milestones
from sample_factory.config.command import PLAYS
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.train import main as train

ENV = "rps_duel"
MOVES = ("rock", "paper", "scissors")
ROUNDS = 10  # in an episode

# [own move, other's move]: reward of the player in a round.
PAYOFFS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def exploitability(strategy: np.ndarray) -> float:
    """Returns the reward per round of the best answer to a strategy, the probabilities of the moves, [3].

    It is 0 at the equilibrium (a third each), and 1 for a player that always plays the same move.
    """
    return float((PAYOFFS @ strategy).max())


class RockPaperScissors:
    """Two players with an empty observation. Action: rock, paper, or scissors. Reward: 1, 0 or -1 a round."""

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
        """Does nothing: there is nothing to draw."""

    def close(self) -> None:
        """Does nothing: there is nothing to free."""

    def _observations(self) -> list[np.ndarray]:
        return [np.zeros(1, np.float32)] * 2


def make_env(full_env_name: str) -> RockPaperScissors:
    """In a rollout worker: makes one env."""
    return RockPaperScissors()


DEFAULTS = {
    "encoder_mlp_layers": (16,),
    "hidden_size": 16,
    "use_rnn": False,
    "gamma": 0.0,  # rounds are independent of each other
    "exploration_loss_coeff": 0.25,  # nothing is learned about moves that are never played
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
    """Prints the strategies of the milestones of --policy_index, and their exploitability."""
    try:
        config = parse_config(argv, resolve_family, PLAYS)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    milestones = find_milestones(config.experiment_dir, config.evaluation.policy_index[0])
    if len(milestones) < 2:
        print(f"error: fewer than 2 milestones in {config.experiment_dir}", file=sys.stderr)
        return 2
    files = [milestone.path(config.experiment_dir) for milestone in milestones]
    played = np.array([strategy_of(path, config) for path in files])
    for milestone, strategy in zip(milestones, played):
        print(describe(f"{milestone.env_frames:>9,} frames", strategy))
    late = played[len(played) // 2 :]
    mean = np.mean([exploitability(strategy) for strategy in late])
    print(f"mean exploitability in the second half: {mean:.3f}")
    print(describe("mean of the second half", late.mean(axis=0)))
    return 0


def strategy_of(milestone: Path, config: Config) -> np.ndarray:
    """Returns the probabilities of the three moves."""
    import torch

    from sample_factory.checkpoints.file_format import read_state

    spec = PolicySpec(
        flags=config.model,
        observation_space=gym.spaces.Dict(obs=RockPaperScissors.observation_space),
        action_space=RockPaperScissors.action_space,
        normalize_returns=config.learning.normalize_returns,
        device="cpu",
        precision="fp32",
    )
    model = spec.build().model
    model.load_state_dict(read_state(milestone)["model"])
    output = model.act({"obs": torch.zeros(1, 1)}, torch.zeros(1, model.state_size))
    return output.logits[0].softmax(dim=0).double().numpy()


def describe(name: str, strategy: np.ndarray) -> str:
    """Returns a line of text about a strategy."""
    moves = ", ".join(f"{move} {chance:.2f}" for move, chance in zip(MOVES, strategy))
    return f"{name}: {moves}; exploitability {exploitability(strategy):.3f}"


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train`, `strategies` or `match`, then flags. Returns the exit code."""
    register_env("rps_", make_env, defaults=DEFAULTS, follows_observation=False)
    commands = {"train": train, "strategies": strategies, "match": command("match")}
    if not argv or argv[0] not in commands:
        usage = f"usage: python {sys.argv[0]} {'|'.join(commands)} --experiment=NAME [flags]"
        print(usage, file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
