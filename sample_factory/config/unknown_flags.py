"""Errors for names that are no flags, with the flag that was probably meant."""

import argparse
import difflib
from collections.abc import Collection, Sequence
from typing import NoReturn

from sample_factory.config.command import Command
from sample_factory.config.flags import ConfigError

CUTOFF = 0.7  # similarity below which a word is no suggestion
# Our flag, or what to write, and its names in Stable-Baselines3, CleanRL, RLlib, PufferLib, version 2 and
# elsewhere.
_SYNONYMS = {
    "--env": "env_id env_name environment environment_name gym_id game task scenario",
    "--experiment": "exp exp_name experiment_name run_name run_id",
    "--train_dir": "logdir log_dir log_folder log_path save_dir save_path output_dir out_dir local_dir "
    "tensorboard_log checkpoint_dir model_dir results_dir",
    "--cfg": "config config_file config_path yaml hyperparams",
    "--seed": "seed_everything random_seed manual_seed",
    "--device=gpu or --device=cpu": "cuda no_cuda use_cuda gpu gpus gpu_id use_gpu num_gpus cpu accelerator",
    "--precision": "fp16 bf16 amp mixed_precision dtype",
    "--serial_mode=True": "debug local_mode",
    "--async_rl=False": "sync synchronous",
    "--restart_behavior=resume, which is the default": "resume resume_from continue_training",
    "--restart_behavior=overwrite": "overwrite force",
    "--num_workers": "workers n_workers num_env_runners num_rollout_workers num_actors num_processes n_jobs",
    "--num_workers and --num_envs_per_worker, whose product is the number of envs": "n_envs num_envs nenvs "
    "total_agents num_environments parallel_envs",
    "--num_envs_per_worker": "envs_per_worker num_envs_per_env_runner n_envs_per_worker",
    "--rollout": "n_steps num_steps nsteps n_step rollout_length rollout_fragment_length rollout_steps "
    "horizon bptt_horizon unroll_length trajectory_length",
    "--recurrence": "bptt bptt_steps sequence_length seq_len max_seq_len",
    "--batch_size": "batch train_batch_size train_batch_size_per_learner minibatch minibatch_size "
    "mini_batch_size sgd_minibatch_size",
    "--num_batches_per_iteration": "num_minibatches n_minibatches nminibatches",
    "--ppo_epochs": "n_epochs epochs update_epochs num_sgd_iter noptepochs ppo_epoch",
    "--learning_rate": "lr step_size",
    "--lr_schedule=linear_decay": "anneal_lr lr_decay lr_anneal linear_lr_decay",
    "--lr_schedule_kl_threshold": "desired_kl",
    "--gamma": "discount discount_factor",
    "--gae_lambda": "lambda lam lambda_ gae_tau",
    "--with_vtrace": "vtrace use_vtrace",
    "--ppo_clip_ratio": "clip_range clip_coef clip_param clip clip_ratio clip_eps eps_clip ppo_clip",
    "--ppo_clip_value": "clip_range_vf clip_vloss vf_clip_param vf_clip_coef",
    "--exploration_loss_coeff": "ent_coef ent_coeff entropy_coef entropy_coeff entropy entropy_bonus "
    "entropy_weight",
    "--value_loss_coeff": "vf_coef vf_coeff vf_loss_coeff value_coef value_loss_coef critic_coef",
    "--kl_loss_coeff": "kl_coef kl_coeff",
    "--max_grad_norm": "grad_clip clip_grad gradient_clip grad_norm max_gradient_norm clip_grad_norm",
    "--optimizer": "optim opt",
    "--normalize_input": "norm_obs normalize_obs normalize_observations obs_norm",
    "--normalize_returns": "norm_reward normalize_reward normalize_rewards norm_returns",
    "--use_rnn": "rnn recurrent use_recurrent",
    "--use_rnn=True --rnn_type=lstm": "lstm use_lstm",
    "--use_rnn=True --rnn_type=gtrxl": "gtrxl use_attention transformer",
    "--gtrxl_memory": "memory_length attention_memory_inference attention_memory_training",
    "--gtrxl_heads": "num_heads n_heads attention_num_heads",
    "--hidden_size": "hidden hidden_dim lstm_cell_size rnn_hidden_size hidden_units",
    "--encoder_mlp_layers": "net_arch hidden_layers fcnet_hiddens hidden_sizes mlp_layers layers",
    "--nonlinearity": "activation activation_fn",
    "--env_frameskip": "frame_skip frameskip action_repeat",
    "--env_framestack": "frame_stack framestack num_stack n_stack stack",
    "--train_for_env_steps": "total_timesteps total_steps total_frames total_env_steps n_timesteps "
    "num_timesteps timesteps max_timesteps max_steps num_env_steps num_frames max_frames frames steps "
    "stop_timesteps train_steps training_steps",
    "--train_for_seconds": "max_seconds max_time time_limit time_budget",
    "--save_every_sec, in seconds": "save_freq save_frequency save_interval save_every checkpoint_freq "
    "checkpoint_frequency checkpoint_interval checkpoint_every",
    "--status_interval, in seconds": "log_interval log_freq log_every print_freq",
    "--num_policies": "population_size pop_size n_policies",
    "--with_pbt": "pbt use_pbt",
    "--checkpoint": "checkpoint_path load load_path load_model model model_path weights ckpt",
    "--load_checkpoint_kind=best": "load_best best",
    "--max_num_episodes": "episodes num_episodes n_episodes n_eval_episodes",
    "--max_num_frames": "eval_steps",
    "--eval_deterministic": "deterministic greedy",
    "--save_video": "video record record_video capture_video record_to",
    "--no_render": "headless",
    "--opponent_experiment": "opponent",
    "--num_matches": "matches num_games games",
    "--with_wandb=True": "wandb use_wandb track",
    "--wandb_user": "wandb_entity",
    "--wandb_project": "wandb_project_name",
    "--wandb_group": "wandb_group_name",
}
_FLAG_OF_SYNONYM = {name: flag for flag, names in _SYNONYMS.items() for name in names.split()}
# Flags of other programs without a counterpart here: the end of the error message.
_WITHOUT_COUNTERPART = {
    "render": "`enjoy` opens a window unless --no_render is given; training draws nothing",
    "render_mode": "`enjoy` opens a window unless --no_render is given; training draws nothing",
    "verbose": "--status_interval sets how often the log reports progress",
    "target_kl": "no iteration ends early; --kl_loss_coeff and --lr_schedule limit the change of a policy",
    "policy": "the network follows from the observations; see --encoder_custom and --use_rnn",
    **dict.fromkeys(
        ("episodic_memory", "episodic_slots", "episodic_momentum"),
        "the episodic memory is not in this version: it did not help on tasks with rare situations",
    ),
    **dict.fromkeys(
        ("mlflow", "comet", "neptune", "tensorboard"),
        "curves are always written for TensorBoard, into the experiment folder",
    ),
}


def nearest(word: str, known: Collection[str], dashes: str = "") -> str:
    """Returns '; did you mean X?', with dashes before X, or an empty string if no known word is similar."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=CUTOFF)
    return f"; did you mean {dashes}{close[0]}?" if close else ""


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
    return f": {text}" if text else nearest(plain, known, "--")


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
