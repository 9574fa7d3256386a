"""Errors for names that are no flags, with the flag that was probably meant."""

import argparse
from collections.abc import Collection, Sequence
from typing import NoReturn

from sample_factory.config.command import Command
from sample_factory.config.flags import ConfigError
from sample_factory.runtime.registry import did_you_mean

CUTOFF = 0.7  # similarity below which a word is no suggestion
# Our flag, or what to write -> its names in Stable-Baselines3, CleanRL, RLlib and PufferLib.
_SYNONYMS = {
    "--env": "env_id env_name gym_id game task scenario",
    "--experiment": "exp_name run_name run_id",
    "--train_dir": "logdir save_dir output_dir tensorboard_log checkpoint_dir",
    "--cfg": "config config_file yaml",
    "--device=gpu or --device=cpu": "cuda use_cuda gpu num_gpus",
    "--async_rl=False": "sync synchronous",
    "--restart_behavior=resume, which is the default": "resume",
    "--num_workers": "workers num_env_runners num_rollout_workers num_processes",
    "--num_workers and --num_envs_per_worker, whose product is the number of envs": "n_envs num_envs",
    "--rollout": "n_steps num_steps rollout_length rollout_fragment_length horizon unroll_length",
    "--batch_size": "train_batch_size minibatch_size sgd_minibatch_size",
    "--num_batches_per_iteration": "num_minibatches n_minibatches",
    "--ppo_epochs": "n_epochs update_epochs num_sgd_iter",
    "--learning_rate": "lr step_size",
    "--lr_schedule=linear_decay": "anneal_lr lr_decay",
    "--gamma": "discount discount_factor",
    "--gae_lambda": "lambda lam lambda_",
    "--ppo_clip_ratio": "clip_range clip_coef clip_param clip_eps",
    "--ppo_clip_value": "clip_range_vf clip_vloss vf_clip_param",
    "--exploration_loss_coeff": "ent_coef entropy_coef entropy_coeff entropy",
    "--value_loss_coeff": "vf_coef vf_loss_coeff value_coef",
    "--max_grad_norm": "grad_clip clip_grad_norm",
    "--normalize_input": "norm_obs normalize_obs",
    "--normalize_returns": "norm_reward normalize_reward",
    "--use_rnn=True --rnn_type=lstm": "lstm use_lstm",
    "--encoder_mlp_layers": "net_arch hidden_layers hidden_sizes fcnet_hiddens",
    "--nonlinearity": "activation activation_fn",
    "--env_frameskip": "frame_skip action_repeat",
    "--env_framestack": "frame_stack num_stack",
    "--train_for_env_steps": "total_timesteps timesteps total_steps max_steps num_frames stop_timesteps",
    "--save_every_sec, in seconds": "save_freq save_interval checkpoint_freq",
    "--checkpoint": "checkpoint_path load_path load_model model_path",
    "--max_num_episodes": "episodes num_episodes n_eval_episodes",
    "--save_video": "video record_video capture_video",
    "--with_wandb=True": "wandb use_wandb track",
}
_FLAG_OF_SYNONYM = {name: flag for flag, names in _SYNONYMS.items() for name in names.split()}
# Flags of other programs without a counterpart here: the end of the error message.
_WITHOUT_COUNTERPART = {
    "target_kl": "no iteration ends early; --kl_loss_coeff and --lr_schedule limit the change of a policy",
    "policy": "the network follows from the observations; see --encoder_custom and --use_rnn",
    "episodic_memory": "it is not in this version, since it did not help on tasks with rare situations",
    **dict.fromkeys(
        ("mlflow", "comet", "neptune", "tensorboard"),
        "curves are always written for TensorBoard, into the experiment folder",
    ),
}


def suggestion(name: str, known: Collection[str]) -> str:
    """Returns the end of an error message about an unknown flag; an empty string if there is nothing to say.

    name: the unknown flag, without its dashes. known: the names of all flags, without dashes.
    """
    plain = name.rpartition(".")[2].replace("-", "_").lower()  # PufferLib: --train.learning-rate
    if plain in known:
        return f": here it is --{plain}"
    flag = _FLAG_OF_SYNONYM.get(plain, "")
    if flag and flag[2:].replace("=", " ").replace(",", " ").split()[0] in known:
        return f": here it is {flag}"
    text = _WITHOUT_COUNTERPART.get(plain)
    return f": {text}" if text else did_you_mean(plain, known, CUTOFF, "--")


def refuse_unknown_flags(parser: argparse.ArgumentParser, rest: Sequence[str], hint: str = "") -> None:
    """Raises ConfigError with the flags that were probably meant, if the parser left any arguments in `rest`.

    hint: appended to the message.
    """
    if not rest:
        return
    options = [option for action in parser._actions for option in action.option_strings]
    known = [option.lstrip("-") for option in options]
    flags = [word for word in rest if word.startswith("-") and not word[1:2].isdigit()]
    if not flags:
        raise ConfigError(_unexpected(rest[0], known) + hint)
    raise ConfigError(
        "; ".join(f"unknown flag {word}{suggestion(word.split('=')[0].lstrip('-'), known)}" for word in flags)
        + hint
    )


def _unexpected(word: str, known: Collection[str]) -> str:
    """Returns the message for an argument that belongs to no flag."""
    if word.split("=")[0] in known:
        return f"unexpected argument {word}: a flag begins with two dashes, --{word}"
    rule = "every value follows its flag, as in --env=doom_basic, and most flags take one value"
    return f"unexpected argument {word}: {rule}"


def refuse_missing_env(argv: Sequence[str], command: Command) -> NoReturn:
    """Raises ConfigError: --env was given under another name, or without its flag, or not at all."""
    for word in argv:
        name = word.split("=")[0].lstrip("-").replace("-", "_")
        is_env = name in ("env", "e") or _FLAG_OF_SYNONYM.get(name) == "--env"
        if word.startswith("-") and is_env and not word.startswith("--env="):
            raise ConfigError(f"unknown flag {word}: here it is --env")
    if argv and not argv[0].startswith("-"):
        raise ConfigError(_unexpected(argv[0], ["env"]))
    typed = [word for word in command.examples.split() if word.startswith("--env=")]
    envs = list(dict.fromkeys(typed)) or ["--env=doom_basic"]
    raise ConfigError(f"--env is missing, e.g. {' or '.join(envs[:2])} (--help lists the families of envs)")
