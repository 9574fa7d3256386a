"""Trains, evaluates, acts and reads the curves with function calls, in a script or a notebook.

    python examples/from_python.py [FOLDER]

FOLDER: for the experiment, ./train_dir by default. Balancing the pole is learned in about 15 seconds; the
same script continues the experiment where it is.
"""

import sys

import gymnasium as gym

import sample_factory

EXPERIMENT = "pole_from_python"


def train(train_dir: str) -> sample_factory.RunResult:
    """Keywords are the flags of the command line; a run that fails raises TrainingFailed."""
    return sample_factory.run(
        env="gym_CartPole-v1",
        experiment=EXPERIMENT,
        train_dir=train_dir,
        train_for_env_steps=40_000,
        num_workers=2,
        num_envs_per_worker=20,
        batch_size=512,
        encoder_mlp_layers=(64, 64),
        use_rnn=False,
        learning_rate=2e-3,
        seed=1,
    )


def play(train_dir: str, num_envs: int = 4, num_steps: int = 100) -> int:
    """Acts in a loop of its own; returns the number of episodes that ended."""
    policy = sample_factory.load_policy(EXPERIMENT, train_dir, deterministic=True)
    same_step = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    envs = gym.make_vec("CartPole-v1", num_envs, "sync", vector_kwargs=same_step)
    observations, _ = envs.reset(seed=1)
    policy.reset(num_envs=num_envs)
    num_ended = 0
    for _ in range(num_steps):
        observations, _, terminated, truncated, _ = envs.step(policy.act(observations))
        policy.reset(terminated | truncated)  # these envs begin another episode
        num_ended += int((terminated | truncated).sum())
    envs.close()
    return num_ended


def main(train_dir: str = "train_dir") -> int:
    """Returns the exit code."""
    run = train(train_dir)
    print(f"{run.status}: {run.env_frames:,} frames, mean reward {run.reward:.0f}, in {run.experiment_dir}")

    result = sample_factory.evaluate(EXPERIMENT, train_dir, num_episodes=6, seed=1)
    print(f"6 episodes: mean reward {result.reward.mean:.0f}")

    print(f"in 100 steps of 4 envs, {play(train_dir)} episodes ended")

    metrics = sample_factory.read_metrics(EXPERIMENT, train_dir, tags="0_aux/avg_reward")
    print(metrics[["env_frames", "value"]].tail(3).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
