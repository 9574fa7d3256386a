"""How a command is declared: the words of its help, its flags, what it reads, and its function.

A command is declared beside its code, and listed in `sample_factory/__main__.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.config.sections import TRAINING_SECTIONS, EnvFlags, ModelFlags, flags_of


class Command(NamedTuple):
    """Declaration of a command of this package: `python -m sample_factory NAME`.

    description: a few sentences about what the command does.
    examples: pairs of lines: a comment, and the arguments of a command to copy.
    run: the function, or its "module:attribute", which is imported once the flags are right. It gets the
        Config, or the command's own section if it takes no flags of an experiment; it returns an exit code,
        None for 0.
    experiment: "": the command takes only its own flags, which are one section. "new": also the flags of an
        experiment, and reads no cfg.json. "resumed": as "new", but reads the cfg.json of an experiment that
        exists. "saved": the experiment must exist; its cfg.json has the env, so --env may be left out.
    sections: name -> section of the flags that only this command has.
    defaults: flag -> default in this command, in place of the default of the flag and of the env.
    reads: names of the shared flags that have an effect in this command, and EXTENDED for further flags of
        the algorithm. The command's own flags and the flags of the env always have an effect. None: flags
        without effect are not reported.
    instead: flag -> what to use in place of it; to set this flag is an error in the command.
    """

    name: str
    description: str = ""
    examples: str = ""
    run: Callable[[Any], int | None] | str = ""
    experiment: Literal["", "new", "resumed", "saved"] = ""
    sections: Mapping[str, type] = {}
    defaults: Mapping[str, Any] = {}
    reads: frozenset[str] | None = None
    instead: Mapping[str, str] = {}

    def uses(self, flag: str, section: str | None) -> bool:
        """Returns whether a flag can have an effect in this command.

        section: name of the section that has the flag; None for a flag that no section has.
        """
        if self.reads is None:
            return True
        if flag in self.instead:
            return False
        is_read = flag in self.reads or (section == EXTENDED and EXTENDED in self.reads)
        return is_read or section not in TRAINING_SECTIONS


# (name, explanation) of the families of envs; the registry of envs adds those that it knows.
ENV_FAMILIES = [
    (
        "your own",
        'in a script: register_env("my_", make_env), then sample_factory.train.main(); see '
        "sample_factory/envs/README.md",
    )
]
EXTENDED = "learning"  # the section to which a user's own algorithm may add flags
# Flags that commands have in common.
OF_EXPERIMENT = frozenset(("env", "experiment", "experiments_root", "train_dir", "cfg", "trust_code"))
# How actions are chosen.
OF_CHOICE = frozenset(("eval_deterministic", "continuous_actions_sample", "eval_env_frameskip"))
# Of the network, what decides which weights it has and what it computes from them.
OF_NETWORK = flags_of(ModelFlags) | {"normalize_returns"}
OF_NETWORK -= {"policy_initialization", "policy_init_gain", "initial_stddev"}
OF_NETWORK -= {"centralized_critic", "centralized_critic_sees"}
# Of commands that play in an env.
OF_ENV = flags_of(EnvFlags) - {"env_both_ends", "level_choice"}
OF_TRAINING = flags_of(*TRAINING_SECTIONS.values()) - flags_of(EvaluationFlags)
OF_TRAINING |= OF_CHOICE | {"eval_episodes", EXTENDED}
# Of commands that play a checkpoint.
OF_PLAYING = (
    OF_EXPERIMENT | OF_NETWORK | OF_ENV | {"load_checkpoint_kind", "policy_index", "checkpoint", "seed"}
)
# Of commands that play in many envs, in worker processes without learners.
OF_PLAYING_IN_PARALLEL = (
    OF_PLAYING
    | OF_CHOICE
    | {"device", "precision", "cuda_graphs", "rollout", "serial_mode", "queue", "default_niceness"}
    | {"num_workers", "num_envs_per_worker", "worker_num_splits", "policy_workers_per_policy"}
    | {"inline_samplers", "reset_timeout_seconds", "actor_worker_gpus", "set_workers_cpu_affinity"}
    | {"force_envs_single_thread", "heartbeat_reporting_interval"}
)
FILMS = dict.fromkeys(
    ("save_video", "video_frames", "video_name", "overlay", "fps", "render_action_repeat"),
    "sample_factory.enjoy draws and writes videos",
)


def counts_episodes(flag: str) -> dict[str, str]:
    """Returns `Command.instead` for a command in which `flag` sets the number of episodes: the other flags
    for a number of episodes or frames -> the hint to write `flag`."""
    names = ("eval_episodes", "max_num_episodes", "max_num_frames")
    return {name: f"write --{flag}=N" for name in names if name != flag}


# Not a command that people type: for scripts that play the policy of an experiment.
PLAYS = Command("", experiment="saved", reads=OF_PLAYING)
# The shared sections are the flags of a training; its function is in training/command.py.
TRAIN = Command(
    name="train",
    description="Trains agents. Checkpoints, curves (for TensorBoard) and the log of a run are written to "
    "train_dir/NAME. Ctrl+C saves and stops; the same command resumes the run.",
    examples="""
    # Doom: shoot one monster. Two to four minutes on two cores.
    --env=doom_basic --experiment=basic --num_workers=2 --num_envs_per_worker=8 --batch_size=512 \
      --train_for_env_steps=450_000
    # Gymnasium: balance a pole. Half a minute.
    --env=gym_CartPole-v1 --experiment=cartpole --num_workers=2 --num_envs_per_worker=20 \
      --train_for_env_steps=400_000
    # Resume a run: its flags are saved in its folder.
    --experiment=basic
    """,
    experiment="resumed",
    reads=OF_TRAINING,
)
# What the flags in --eval_flags are for.
EVAL_FLAGS = Command(
    "evaluations during training",
    reads=OF_EXPERIMENT
    | OF_NETWORK
    | OF_ENV
    | OF_CHOICE
    | {"seed", "rollout", "num_envs_per_worker", "worker_num_splits", "eval_episodes"},
    instead={**counts_episodes("eval_episodes"), **FILMS},
)
