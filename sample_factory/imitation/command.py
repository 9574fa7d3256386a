"""The command `imitate`."""

from sample_factory.config.command import OF_EXPERIMENT, Command
from sample_factory.config.config import Config
from sample_factory.config.sections import EnvFlags, ModelFlags, flags_of
from sample_factory.imitation import ImitateFlags, check


def run_imitate(config: Config) -> None:
    """Runs the command `imitate`: checks the flags, then trains. Raises ConfigError for wrong flags or games
    that do not fit, CheckpointError if the checkpoint cannot be written."""
    check(config)
    from sample_factory.imitation.imitate import imitate  # loads torch

    imitate(config)


COMMAND = Command(
    name="imitate",
    experiment="new",
    description="Records games of an env's scripted players, or reads a Minari data set, and trains a policy "
    "to choose the same actions. `train --transfer_from=NAME` then starts with its weights.",
    examples="""
    # Imitate a bot of Generals, then train by self-play from there.
    --env=generals_8x8 --experiment=clone --teachers=expander
    # Keep the games, to train other networks on them.
    --env=generals_8x8 --experiment=clone --save_games=games
    # Imitate recorded games.
    --env=generals_8x8 --experiment=other --games=games
    """,
    run=run_imitate,
    sections={"imitate": ImitateFlags},
    reads=OF_EXPERIMENT
    | flags_of(EnvFlags, ModelFlags) - {"centralized_critic_sees"}
    | {"restart_behavior", "algo", "device", "compile", "seed", "learner_main_loop_num_cores"}
    | {"rollout", "recurrence", "batch_size", "gamma", "reward_scale", "reward_clip", "normalize_returns"}
    | {"value_loss_coeff", "use_cpc", "cpc_forward_steps", "optimizer", "learning_rate", "max_grad_norm"}
    | {"adam_eps", "adam_beta1", "adam_beta2", "rmsprop_alpha", "rmsprop_eps"}
    | {"keep_checkpoints", "log_to_file"},
    instead={
        "centralized_critic": "each recorded episode is of one agent; use it with sample_factory.train",
        "train_for_env_steps": "write --imitate_epochs=N",
        "train_for_seconds": "write --imitate_epochs=N",
        "ppo_epochs": "write --imitate_epochs=N",
    },
)
