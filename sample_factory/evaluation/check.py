"""The command `check` and the function `sample_factory.check_env`. Bad flags are reported at once."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sample_factory.config.command import OF_TRAINING, Command
from sample_factory.config.config import Config
from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import flags_of
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_registry import resolve_family
from sample_factory.launch.exit_codes import DONE, FAILED
from sample_factory.launch.objects_of_call import name_of, with_names
from sample_factory.models.network_registry import users_parts
from sample_factory.runtime.child import call_in_child
from sample_factory.runtime.failures import Explained, one_line

if TYPE_CHECKING:
    from sample_factory.models.policy_spec import PolicySpec

PLAY_SECONDS = 600.0  # a simulator may compile its step for minutes
ROWS = 16  # of the forward passes that are timed
PASSES = 5
TITLE_WIDTH = 16


class CheckReport(NamedTuple):
    """What `check_env` has found; `str(report)` is a page of text.

    For example:

        report = sample_factory.check_env(MyEnv)
        assert not report.faults, report

    Attributes:
        env: Name of the env.
        lines: What the env was recognised as, its spaces, seeds, ends, rewards and so on: title -> text.
        notes: What a training would log about the flags and the network, most of it warnings.
        faults: One line for each fault; empty if the env can be trained in.
    """

    env: str
    lines: Mapping[str, str]
    notes: Sequence[str]
    faults: Sequence[str]

    def __str__(self) -> str:
        rows = [f"{title:<{TITLE_WIDTH}}{text}" for title, text in self.lines.items()]
        rows += [f"{'note':<{TITLE_WIDTH}}{text}" for text in self.notes]
        rows += [f"fault: {text}" for text in self.faults] or ["no faults"]
        return "\n".join([self.env, *(f"  {row}" for row in rows)])


def check_env(env: str | Callable[..., Any] | Any, **flags: Any) -> CheckReport:
    """Plays an env for a few hundred steps with random actions, and reports what a training would see.

    Args:
        env: An env, which is played in this process and stays open. Or the name of a registered env or of one
            of Gymnasium, a class of envs, or a function that returns an env: a new env is then made and
            played in another process.
        **flags: Any flag of `python -m sample_factory train --help=all`, or of the env's family.

    Returns:
        A CheckReport. Faults of the env, and of your own networks and algorithms that the flags name, are in
            the report; they raise no exception.

    Raises:
        ConfigError: For a wrong flag, and for a name that is not registered.

    For example:

        report = sample_factory.check_env("CartPole-v1", reward_scale=0.1)
        print(report)
        print(report.lines["ends"], report.faults)
    """
    if isinstance(env, str) or callable(env):
        config = parse_config([], resolve_family, COMMAND, keywords=with_names({"env": env, **flags}))
        return check(config, resolve_family(config.env_name))
    family = EnvFamily(name_of(env), lambda: env, None, {}, follows_observation=True)
    keywords = {**with_names(flags), "env": family.env_name}
    config = parse_config([], lambda _: family, COMMAND, keywords=keywords)
    return check(config, family, is_made=True)


def run_check(config: Config) -> int:
    """Runs the command `check`: prints the report. Returns the exit code: 1 for a report with faults."""
    report = check(config, resolve_family(config.env_name))
    print(report)
    return FAILED if report.faults else DONE


COMMAND = Command(
    name="check",
    description="Plays a few hundred steps with random actions, in the env as a training would make it, and "
    "reports how the env was recognised, its spaces, network, seeds, ends, rewards and speed. The exit code "
    "is 1 if it has a fault, which is one line each.",
    examples="""
    # What is this env?
    --env=gym_CartPole-v1
    # Does a network of your own compute the same for actors and learners?
    --env=doom_basic --encoder_custom=my_module:MyEncoder
    # An env with the flags of a recipe.
    --env=doom_battle --cfg=configs/doom_battle.json
    """,
    experiment="new",
    run=run_check,
    reads=OF_TRAINING
    - flags_of(EvaluationFlags)
    - {"experiment", "experiments_root", "restart_behavior", "load_checkpoint_kind"},
)


def check(config: Config, family: EnvFamily, is_made: bool = False) -> CheckReport:
    """Plays an env of the family, plans a training in it, and returns a report of what went wrong and what
    was seen.
    is_made: whether the family always returns the same env, which is then played in this process and stays
        open. Otherwise a new env is played in a child."""
    # Not at the top of the file: --help needs none of it.
    from sample_factory.envs.env_info import make_adapted_env
    from sample_factory.envs.protocol import EnvConfig
    from sample_factory.evaluation.check_play import Play, play
    from sample_factory.launch.plan import plan_run

    cfg = config.namespace()
    make = functools.partial(make_adapted_env, family, cfg, EnvConfig(0, 0, 0))
    args = (family.env_name, make, cfg, not is_made)
    seen, notes = Play(), []
    try:
        seen = play(*args) if is_made else call_in_child("env_check", play, args, PLAY_SECONDS)
        if seen.info is not None:
            plan = plan_run(config, family, seen.info if is_made else None)
            notes = [note.text for note in plan.notes]
            spec = plan.sampling.acting.policies[0]
            seen.lines["network"] = call_in_child("network_check", measure, (spec,), PLAY_SECONDS, True)
            parts = " and ".join(f"{part} {name}" for part, name in users_parts(config.model).items())
            if parts:
                seen.lines["computes alike"] = (
                    f"{parts}: in one call for many steps and in one for each, with resets, in training and "
                    "evaluation mode, and in two networks with the same state_dict"
                )
    except (Explained, ImportError) as error:
        seen.faults["failed"] = one_line(error)
    faults = dict.fromkeys(seen.faults.values())  # the trial of the plan finds some of them again
    return CheckReport(family.env_name, seen.lines, notes, [*faults])


def measure(spec: "PolicySpec") -> str:
    """Returns a line for a CheckReport: the network's number of parameters, and the time of its forward pass
    on one core. Runs in a child: it limits torch to one thread."""
    import torch

    from sample_factory.models.network_checks import made_up_observations

    torch.set_num_threads(1)
    model = spec._replace(device="cpu").build().model
    observations = made_up_observations(spec.observation_space, 1, ROWS, model.device)
    rows = {key: tensor[0] for key, tensor in observations.items()}
    rnn_state = torch.zeros(ROWS, model.state_size)
    seconds = []
    with torch.inference_mode():
        for _ in range(PASSES):
            started = time.monotonic()
            model.act(rows, rnn_state)
            seconds.append(time.monotonic() - started)
    number = sum(parameter.numel() for parameter in model.parameters())
    milliseconds = 1e3 * min(seconds) / ROWS
    return f"{number:,} parameters, {milliseconds:.2g} ms a row on one core, in batches of {ROWS}"
