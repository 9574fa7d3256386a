import contextlib
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory import register_algorithm, register_core
from sample_factory.config.config import Resumed
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.measurement import plan_evaluation
from sample_factory.exchange.topology import make_topology
from sample_factory.launch import checks
from sample_factory.launch.checks import (
    check_alternation,
    check_critic_only_keys,
    check_env,
    flags_without_effect,
)
from sample_factory.launch.notes import describe_networks
from sample_factory.launch.plan import plan_run
from sample_factory.runtime import local_ray
from sample_factory.runtime.failures import CommandFailed, Failure
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import observation_layout
from tests.counting import CountingEnv, make_config, make_plan

S = gym.spaces
SPACE = S.Dict(
    grid=S.Box(0, 255, (7, 7, 3), np.uint8), place=S.Discrete(16), table=S.Box(-1, 1, (27, 5), np.float64)
)


def config(*flags):
    return parse_config(["--env=gym_CartPole-v1", "--train_dir=/nonexistent", *flags], resolve_family)


def info(space):
    return EnvInfo(AgentKinds.one(observation_layout(space).space, S.Discrete(2), 1), 1)


def lines(config, info, warnings=False):
    """Returns the lines for the log about the networks, or the warnings among them."""
    return [note.text for note in describe_networks(config, info) if note.is_warning == warnings]


@pytest.mark.parametrize(
    ("flags", "checked"),
    [
        ((), (0, ())),
        (("--actor_worker_gpus", "0", "1", "--inline_samplers=0"), (0, (0, 1))),
        (("--default_niceness=-5",), (-5, ())),
    ],
)
def test_priority_and_gpus_of_a_training_are_checked_once(monkeypatch, flags, checked):
    calls = []
    monkeypatch.setattr(checks, "check_workers", lambda niceness, _, gpus: calls.append((niceness, (*gpus,))))
    plan_run(config(*flags), resolve_family("gym_CartPole-v1"), info(S.Box(-1, 1, (4,), np.float32)))
    assert calls == [checked]


def test_the_encoder_of_each_observation_is_logged():
    assert lines(config("--encoder_mlp_layers", "32"), info(SPACE)) == [
        "Encoder of grid uint8 [7, 7, 3]: convnet_small (convnet_simple needs 36x36 pixels); "
        "place Discrete [16]: table lookup, then MLP 32; "
        "table float32 [27, 5]: MLP 32 (a table, too small for convnet_simple)"
    ]
    assert lines(config("--encoder_custom=a:B"), info(SPACE)) == ["Encoder: a:B"]
    parts = config("--core_custom=a:B", "--decoder_custom=a:C")
    assert lines(parts, info(SPACE))[:2] == ["Core: a:B", "Decoder: a:C"]
    assert lines(config("--actor_critic_custom=a:D"), info(SPACE)) == ["Network: a:D"]


def test_a_costly_default_for_pictures_is_warned_of_at_the_start_of_an_experiment():
    pictures = info(S.Dict(screen=S.Box(0, 255, (128, 128, 3), np.uint8)))
    by_size = config("--device=cpu", "--encoder_subtype=auto")
    (warning,) = lines(by_size, pictures, warnings=True)
    assert "screen uint8 [128, 128, 3]: convnet_atari takes 45 MFLOP" in warning
    assert not lines(replace(by_size, resumed=Resumed()), pictures, warnings=True), "it cannot be changed"
    assert not lines(config("--device=cpu", "--encoder_subtype=convnet_impala"), pictures, warnings=True)
    assert not lines(config("--device=gpu", "--encoder_subtype=auto"), pictures, warnings=True)


def test_a_ray_cluster_that_cannot_be_reached_is_an_error_before_the_start(monkeypatch):
    monkeypatch.setattr(local_ray, "CONNECT_SECONDS", 0.0)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(CommandFailed, match="RAY_ADDRESS=127.0.0.1:1"):
        plan_run(config("--num_nodes=2"), resolve_family("gym_CartPole-v1"))


def test_evaluation_during_training_is_refused_where_one_policy_cannot_play_all_agents():
    plan = make_plan(config("--eval_every_env_steps=100", "--num_envs_per_worker=2"), CountingEnv())
    with pytest.raises(ConfigError, match="--eval_every_env_steps"):
        plan_evaluation(plan._replace(sampling=plan.sampling._replace(info=EnvInfo(TWO_KINDS, 1))))
    assert plan_evaluation(make_plan(config("--num_envs_per_worker=2"), CountingEnv())) is None


def players(*teams, are_copies=False):
    kinds = AgentKinds.one(observation_layout(SPACE).space, S.Discrete(2), len(teams))
    return EnvInfo(kinds, 1, teams=teams, are_copies=are_copies)


TWO_KINDS = AgentKinds((*info(SPACE).kinds.spaces, *info(S.Box(-1, 1, (3,))).kinds.spaces), (0, 1))
MASKED = info(S.Dict({**SPACE.spaces, "action_mask": S.Box(0, 1, (2,), np.uint8)}))
STEERED = EnvInfo(AgentKinds.one(observation_layout(SPACE).space, S.Box(-1, 1, (2,)), 1), 1)
MEETING = (players(0, 0, are_copies=True), players(0, 1), players(0, 0))
# Flags, the envs with which they are refused, words of the message, and the envs with which they are not.
CHECKED = [
    ("--selfplay_past_share=0.5", (players(0), players(0, are_copies=True)), "has one: past selves", MEETING),
    ("--selfplay_past_share=0.5", (players(0, 1, 2, are_copies=True),), "one in each copy", MEETING),
    ("--selfplay_past_share=0.5", (players(0, 0, 1, 1, are_copies=True),), "--vector_env_copies=1", MEETING),
    ("--shared_reward=0.5", (players(0), players(0, 1)), "alone", (players(0, 0),)),
    ("--num_policies=1", (EnvInfo(TWO_KINDS, 1),), "2 kinds use 2 or 4", (info(SPACE),)),
    ("--num_policies=3", (EnvInfo(TWO_KINDS, 1),), "2 kinds use 2 or 4", (info(SPACE),)),
    ("--with_pbt=True --num_policies=2", (EnvInfo(TWO_KINDS, 1),), "copies weights", (info(SPACE),)),
    ("--exploration_loss=symmetric_kl", (STEERED,), "discrete actions entropy", (info(SPACE),)),
    ("--normalize_input_keys grid place", (info(SPACE),), "place", ()),
    ("--normalize_input_keys pixels", (info(SPACE),), "pixels grid place table", ()),
    ("--normalize_input_keys grid table", (), "", (info(SPACE),)),
    ("--critic_only_keys pixels", (MASKED,), "pixels grid place table", ()),
    ("--critic_only_keys action_mask", (MASKED,), "action_mask actor", ()),
    ("--critic_only_keys grid place table", (MASKED,), "grid place table nothing", ()),
    ("--critic_only_keys place grid", (), "", (MASKED,)),
    ("--encoder_subtype=convnet_atari", (info(SPACE),), "convnet_atari", ()),
    ("--gamma=0.9", (), "", (*MEETING, players(0), players(0, 1, 2, are_copies=True))),
]


@pytest.mark.parametrize(("flags", "refusing", "words", "accepting"), CHECKED)
def test_flags_that_do_not_fit_the_env_are_refused_in_a_line_that_names_them(
    flags, refusing, words, accepting
):
    own = config(*flags.split())

    def check(env):
        check_env(own, env)
        check_critic_only_keys(own, env.kinds)
        describe_networks(own, env)

    for env in refusing:
        with pytest.raises(ConfigError) as refused:
            check(env)
        message = str(refused.value)
        named = flags.partition(" ")[0].partition("=")[0]
        assert [word for word in (named, *words.split()) if word not in message] == []
        assert message.isprintable()
    for env in accepting:
        check(env)


def test_alternation_with_sizes_that_never_fit_is_refused_with_a_size_that_does():
    for batch_size, message in ((136, "the nearest that works is 128"), (256, None)):
        flags = {"num_workers": 4, "num_envs_per_worker": 4, "async_rl": False, "batch_size": batch_size}
        own = make_config(**flags)
        topology = make_topology(own, info(SPACE))
        refused = pytest.raises(ConfigError, match=message) if message else contextlib.nullcontext()
        with refused:
            check_alternation(own, topology)
    assert topology.rollouts_per_iteration == 2


def test_both_encoders_are_logged_where_the_critic_gets_more():
    own = config("--encoder_mlp_layers", "32", "--critic_only_keys", "place", "table")
    actors, critics = lines(own, info(SPACE))
    assert actors.startswith("Encoder of grid") and "place" not in actors
    assert "--critic_only_keys" in critics and "grid" in critics and "place" in critics
    assert "--centralized_critic" not in critics
    both = config("--critic_only_keys", "place", "--centralized_critic=True")
    assert "(--critic_only_keys, --centralized_critic)" in lines(both, info(SPACE))[1]


def without_effect(config, *boxes):
    """Returns the lines about flags without effect with an env that observes these boxes."""
    kinds = info(S.Dict({str(number): box for number, box in enumerate(boxes)})).kinds
    return flags_without_effect(config, kinds)


def test_what_the_env_observes_decides_whether_flags_of_images_and_vectors_have_an_effect():
    picture, small = (S.Box(0, 255, (side, side, 3), np.uint8) for side in (64, 3))
    table, vector = S.Box(-1, 1, (27, 5), np.float32), S.Box(-1, 1, (3,))
    stacked, layers = config("--env_framestack=4"), config("--encoder_mlp_layers", "32")
    assert without_effect(stacked, picture, vector) == without_effect(stacked, small) == []
    for box in (table, vector):
        (line,) = without_effect(stacked, box)
        assert line.startswith("--env_framestack has no effect; needed: image observations")
    assert (
        without_effect(layers, vector) == without_effect(layers, table) == without_effect(layers, small) == []
    )
    assert without_effect(layers, picture)[0].startswith(
        "--encoder_mlp_layers has no effect; needed: vector obs"
    )


def test_flags_beside_a_default_that_follows_the_observation_are_reported_by_the_plan():
    own = config("--vtrace_rho=2", "--hidden_size=32", "--num_workers=1")
    lines = [note.text for note in plan_run(own, resolve_family(own.env_name)).notes if note.is_warning]
    assert lines == [
        "--vtrace_rho has no effect; needed: --with_vtrace=True",
        "--hidden_size has no effect; needed: --use_rnn=True",
    ]


def test_a_rate_that_should_decay_needs_a_number_of_frames_until_which_it_does():
    decaying = ["--lr_schedule=linear_decay", "--train_for_seconds=9"]
    for flags, count in ((decaying, 1), ([*decaying, "--train_for_env_steps=100"], 0), (decaying[1:], 0)):
        own = config(*flags)
        notes = plan_run(own, resolve_family(own.env_name)).notes
        assert sum("linear_decay" in note.text for note in notes if note.is_warning) == count


def test_a_core_of_the_main_script_is_built_in_a_child_which_gives_the_size_of_its_state():
    class Core(torch.nn.Module):
        out_size = 4
        state_size = 3

        def __init__(self, flags, in_size):
            super().__init__()

        def forward(self, x, rnn_state, resets):
            return x[..., :4], rnn_state

    register_core("of_this_test", Core)
    own = config("--core_custom=of_this_test", "--actor_critic_share_weights=False")
    assert plan_run(own, resolve_family(own.env_name)).sampling.state_size == 6


def test_a_faulty_algorithm_is_found_before_training():
    register_algorithm("OF_THIS_TEST", lambda flags, policy, rng: object())
    own = config("--algo=OF_THIS_TEST")
    with pytest.raises(Failure, match="OF_THIS_TEST.*fixes_targets"):
        plan_run(own, resolve_family(own.env_name))
