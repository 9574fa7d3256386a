import json

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.config import observation_defaults
from sample_factory.config.command import PLAYS
from sample_factory.config.config import with_lists
from sample_factory.config.consistency import check_training
from sample_factory.config.observation_defaults import PICTURES, SETS, VECTORS, critic_keys
from sample_factory.config.parsing import as_arguments, parse_config, with_flags
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.exchange.topology import make_topology
from sample_factory.launch.arrangement import arrange
from sample_factory.launch.checks import check_alternation
from sample_factory.launch.notes import note_bounds
from sample_factory.launch.plan import with_defaults_for
from sample_factory.models.encoder_choice import choose_encoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import Indices

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
PICTURE = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
BOARD = gym.spaces.Box(0, 1, (3, 3), np.uint8)
TWO = gym.spaces.Discrete(2)
CONTINUOUS = gym.spaces.Box(-1, 1, (2,), np.float32)
MASK = gym.spaces.Box(0, 1, (2,), np.int8)


@pytest.fixture(autouse=True)
def families():
    register_env("mine", lambda: None, defaults={"ppo_epochs": 2})
    register_env("plain", lambda: None)


def chosen(tmp_path, spaces, *argv, action_space=TWO, num_agents=1, is_simulator=False):
    config = parse_config(["--env=mine", f"--train_dir={tmp_path}", *argv], resolve_family)
    kinds = AgentKinds.one(gym.spaces.Dict(spaces), action_space, num_agents)
    return with_defaults_for(config, kinds, is_simulator)


def check_agents_contribute_equally(config, actions, num_agents=1, step_seconds=1e-6):
    info = EnvInfo(AgentKinds.one(VECTOR, actions, num_agents), 1, step_seconds=step_seconds)
    arranged, *_ = arrange(config, info)
    check_alternation(arranged, make_topology(arranged, info))


def simulated(tmp_path, copies, *argv, groups=("policy", "critic"), **spaces):
    """Returns the configuration and the notes for a batched simulator."""
    observed = {**dict.fromkeys(groups, VECTOR), **spaces}
    kinds = {"action_space": CONTINUOUS, "num_agents": copies, "is_simulator": True}
    return chosen(tmp_path, observed, "--env=plain", *argv, **kinds)


@pytest.mark.parametrize(
    ("spaces", "flags"),
    [
        ({"obs": VECTOR}, VECTORS),
        ({"obs": Indices([5])}, VECTORS),
        ({"obs": BOARD}, VECTORS),
        ({"obs": VECTOR, "action_mask": MASK}, VECTORS),
        ({"obs": PICTURE}, PICTURES),
        ({"picture": PICTURE, "place": VECTOR, "action_mask": MASK}, PICTURES),
    ],
)
def test_flags_that_nothing_sets_follow_the_observation(tmp_path, spaces, flags):
    config, (note,) = chosen(tmp_path, spaces)
    family = {"ppo_epochs": 2}
    assert {**flags, **family}.items() <= config.flat().items()
    assert ", ".join(key for key in spaces if key != "action_mask") in note.text
    assert f"learning_rate {flags['learning_rate']}" in note.text and "ppo_epochs" not in note.text


def test_typed_flags_and_files_win(tmp_path):
    file = tmp_path / "file.json"
    file.write_text(json.dumps({"learning_rate": 0.5}))
    config, _ = chosen(tmp_path, {"obs": VECTOR}, f"--cfg={file}", "--use_rnn=True")
    assert config.model.use_rnn and config.learning.learning_rate == 0.5
    assert config.learning.gae_lambda == VECTORS["gae_lambda"]


def test_lengths_that_have_to_fit_each_other_are_chosen_together(tmp_path):
    config, _ = chosen(tmp_path, {"obs": VECTOR}, "--batch_size=96")
    assert (config.learning.batch_size, config.learning.rollout) == (96, 32)
    assert config.learning.num_batches_per_iteration == 1, "8 of a large size would be too many samples"


@pytest.mark.parametrize("num_workers", [1, 2, 3, 6, 8, 12])
@pytest.mark.parametrize("num_agents", [1, 3])
def test_with_continuous_actions_sampling_and_learning_alternate(tmp_path, num_workers, num_agents):
    flags = ["--env=plain", f"--num_workers={num_workers}"]
    kinds = {"action_space": CONTINUOUS, "num_agents": num_agents}
    config, (note,) = chosen(tmp_path, {"obs": VECTOR}, *flags, **kinds)
    assert not config.sampling.async_rl and "async_rl False" in note.text
    for step_seconds in (1e-6, 0.1):
        check_agents_contribute_equally(config, CONTINUOUS, num_agents, step_seconds)


@pytest.mark.parametrize(("device", "observation"), [("cpu", PICTURE), ("gpu", PICTURE), ("cpu", VECTOR)])
def test_with_pictures_sampling_and_learning_alternate_where_both_use_the_same_cores(
    tmp_path, device, observation
):
    config, (note,) = chosen(tmp_path, {"obs": observation}, "--env=plain", f"--device={device}")
    alternates = device == "cpu" and observation is PICTURE
    assert config.sampling.async_rl != alternates
    assert ("async_rl False" in note.text) == alternates and "continuous" not in note.text
    config, _ = chosen(tmp_path, {"obs": PICTURE}, "--env=plain", "--device=cpu", "--async_rl=True")
    assert config.sampling.async_rl
    config, notes = chosen(tmp_path, {"obs": PICTURE}, "--env=plain", "--device=cpu", "--num_policies=2")
    assert config.sampling.async_rl and len(notes) == 1, "nothing to warn of"


@pytest.mark.parametrize("num_workers", [1, 2, 6, 12, 128])
@pytest.mark.parametrize("action_space", [TWO, CONTINUOUS])
@pytest.mark.parametrize("algo", ["APPO", "IMPALA", "VMPO"])
def test_alternating_on_request_needs_no_other_flag_on_any_machine(tmp_path, num_workers, action_space, algo):
    flags = ["--env=plain", f"--num_workers={num_workers}", "--async_rl=False", f"--algo={algo}"]
    config, (note,) = chosen(tmp_path, {"obs": VECTOR}, *flags, action_space=action_space)
    assert not config.sampling.async_rl and "async_rl" not in note.text
    assert config.learning.ppo_epochs == (VECTORS["ppo_epochs"] if algo == "APPO" else 1)
    check_agents_contribute_equally(config, action_space)


def test_a_number_of_minibatches_that_is_typed_stays_where_sampling_and_learning_alternate(tmp_path):
    flags = ["--env=plain", "--num_workers=6", "--async_rl=False", "--num_batches_per_iteration=5"]
    config, _ = chosen(tmp_path, {"obs": VECTOR}, *flags)
    assert config.learning.num_batches_per_iteration == 5


UNBOUNDED = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
PEDALS = gym.spaces.Dict(gear=TWO, gas=gym.spaces.Box(0, 1000, (1,), np.int32))


@pytest.mark.parametrize(
    ("actions", "flags", "is_scaled"),
    [
        (PEDALS, [], True),
        (gym.spaces.Box(-2, 2, (1,), np.float32), [], True),
        (PEDALS, ["--scale_actions=False"], False),
        (PEDALS, ["--actor_critic_custom=own"], False),
        (CONTINUOUS, [], False),
        (UNBOUNDED, [], False),
        (TWO, [], False),
    ],
    ids=str,
)
def test_actions_with_other_bounds_than_one_are_scaled(tmp_path, actions, flags, is_scaled):
    config, (note, *_) = chosen(tmp_path, {"obs": VECTOR}, "--env=plain", *flags, action_space=actions)
    assert config.model.scale_actions == is_scaled
    assert ("scale_actions" in note.text) == is_scaled


@pytest.mark.parametrize(
    ("high", "flags", "is_warned"),
    [
        (1000, [], True),
        (0.01, [], True),
        (2, [], False),
        (np.inf, [], False),
        (1000, ["--scale_actions=True"], False),
        (1000, ["--scale_actions=False"], False),
    ],
)
def test_bounds_far_from_one_that_nothing_scales_are_named(tmp_path, high, flags, is_warned):
    register_env("general", lambda: None, follows_observation=False)
    config = parse_config(["--env=general", f"--train_dir={tmp_path}", *flags], resolve_family)
    space = gym.spaces.Box(0, high, (1,), np.float32)
    notes = note_bounds(config, AgentKinds.one(gym.spaces.Dict(obs=VECTOR), space, 1))
    assert [note.is_warning for note in notes] == [True] * is_warned
    assert all(f"0 and {high:g}, " in note.text and "--scale_actions=True" in note.text for note in notes)


def test_an_experiment_from_before_the_flag_keeps_its_actions(tmp_path):
    config, _ = chosen(tmp_path, {"obs": VECTOR}, "--experiment=a", action_space=PEDALS)
    config.save()
    path = config.experiment_dir / "cfg.json"
    saved = json.loads(path.read_text())
    assert saved.pop("scale_actions") is True
    path.write_text(json.dumps(saved))
    again, notes = chosen(tmp_path, {"obs": VECTOR}, "--experiment=a", action_space=PEDALS)
    assert not again.model.scale_actions and not notes


@pytest.mark.parametrize("name", ["mujoco_pendulum", "doom_basic", "atari_pong"])
def test_a_family_that_knows_its_envs_scales_no_actions(tmp_path, name):
    config = parse_config([f"--env={name}", f"--train_dir={tmp_path}"], resolve_family)
    kinds = AgentKinds.one(gym.spaces.Dict(obs=VECTOR), gym.spaces.Box(-3, 3, (1,), np.float32), 1)
    assert not with_defaults_for(config, kinds)[0].model.scale_actions


@pytest.mark.parametrize("flag", ["rnn_type=lstm", "rnn_num_layers=2", "gtrxl_memory=8", "gtrxl_heads=2"])
def test_whoever_sets_a_flag_of_the_memory_gets_one(tmp_path, flag):
    config, (note,) = chosen(tmp_path, {"obs": VECTOR}, "--env=plain", f"--{flag}")
    assert config.model.use_rnn and "use_rnn" not in note.text
    config, _ = chosen(tmp_path, {"obs": VECTOR}, "--env=plain", f"--{flag}", "--use_rnn=False")
    assert not config.model.use_rnn


@pytest.mark.parametrize(
    ("flags", "is_warned"),
    [
        (["--async_rl=True"], False),
        (["--algo=IMPALA"], False),
        (["--num_policies=2"], True),
        (["--num_nodes=2"], True),
        (["--num_workers=128"], True),
        (["--num_workers=4", "--num_envs_per_worker=34"], True),
        (["--batch_size=512"], True),
    ],
)
def test_where_sampling_and_learning_cannot_alternate_a_line_says_so(tmp_path, flags, is_warned):
    config, notes = chosen(tmp_path, {"obs": VECTOR}, "--env=plain", *flags, action_space=CONTINUOUS)
    assert config.sampling.async_rl
    assert is_warned == any(note.is_warning and "--async_rl=False" in note.text for note in notes)


def test_a_resumed_run_keeps_what_was_chosen(tmp_path):
    config, _ = chosen(tmp_path, {"obs": VECTOR}, "--experiment=a")
    config.save()
    again, notes = chosen(tmp_path, {"obs": PICTURE}, "--experiment=a")
    assert again.flat() == config.flat() and not notes
    for_evaluation = parse_config(
        as_arguments({"experiment": "a", "train_dir": str(tmp_path)}), resolve_family, PLAYS
    )
    assert not for_evaluation.open_flags
    assert for_evaluation.flat()["learning_rate"] == VECTORS["learning_rate"]


def test_a_run_that_was_begun_with_another_network_for_its_pictures_keeps_it(tmp_path):
    small = gym.spaces.Box(0, 255, (32, 48, 3), np.uint8)
    config, _ = chosen(tmp_path, {"obs": small}, "--experiment=a", "--encoder_subtype=convnet_atari")
    config.save()
    again, _ = chosen(tmp_path, {"obs": small}, "--experiment=a")
    assert again.model.encoder_subtype == "convnet_atari"
    assert choose_encoder(again.model, "obs", small).preset == "convnet_small"
    new, _ = chosen(tmp_path, {"obs": small}, "--experiment=b")
    assert choose_encoder(new.model, "obs", small).preset == "convnet_medium"


def test_flags_of_an_evaluation_choose_nothing(tmp_path):
    config, _ = chosen(tmp_path, {"obs": VECTOR})
    changed = with_flags(config, ["--gamma=0.5"], resolve_family)
    assert not changed.open_flags and changed.learning.learning_rate == VECTORS["learning_rate"]


def test_a_built_in_family_that_knows_its_envs_chooses_by_itself(tmp_path):
    for name, follows in (("doom_basic", False), ("atari_pong", False), ("gym_CartPole-v1", True)):
        config = parse_config([f"--env={name}", f"--train_dir={tmp_path}"], resolve_family)
        assert bool(config.open_flags) == follows


@pytest.mark.parametrize(
    ("copies", "flags"),
    [
        (4096, []),
        (30, []),
        (5, []),
        (1, ["--rollout=16"]),
        (4096, ["--num_policies=2"]),
        (4096, ["--num_nodes=2"]),
        (4096, ["--sampler_only=True"]),
        (4096, ["--async_rl=True"]),
        (30, ["--recurrence=16", "--use_rnn=True"]),
        (30, ["--rollout=10"]),
        (30, ["--learners_per_policy=4"]),
        (30, ["--num_batches_per_iteration=7"]),
        (30, ["--num_workers=2"]),
        (30, ["--critic_only_keys", "--nonlinearity=relu"]),
        (30, ["--batch_size=100"]),
        (30, ["--ppo_epochs=1", "--num_batches_per_iteration=1"]),
    ],
    ids=str,
)
def test_the_sizes_of_a_simulator_fit_the_flags_that_are_typed(tmp_path, copies, flags):
    config, _ = simulated(tmp_path, copies, *flags)  # which checks them
    learning, sampling = config.learning, config.sampling
    for flag, value in config.typed.items():
        assert with_lists(config.flat())[flag] == value
    trajectories = learning.batch_size * learning.num_batches_per_iteration // learning.rollout
    assert trajectories % (copies * sampling.num_workers) == 0
    most = 2048 // learning.rollout + 8 * copies * sampling.num_workers
    assert 1024 // learning.rollout <= trajectories <= most, "a few rollouts"
    assert sampling.inline_samplers == sampling.num_workers, "one for each simulator"
    assert 10 <= learning.rollout <= 32
    cannot = sampling.num_policies > 1 or config.cluster.num_nodes > 1 or sampling.sampler_only
    assert sampling.async_rl == (cannot or "async_rl" in config.typed)
    info = EnvInfo(AgentKinds.one(VECTOR, CONTINUOUS, copies), 1, is_simulator=True)
    check_training(config)
    check_alternation(config, make_topology(config, info, sampling.inline_samplers))


@pytest.mark.parametrize(
    ("device", "flags", "ahead"),
    [
        ("cpu", [], True),
        ("gpu", [], False),
        ("cpu", ["--async_rl=True"], False),
        ("cpu", ["--sample_ahead=False"], False),
        ("cpu", ["--with_vtrace=True"], False),
        ("cpu", ["--max_policy_lag=20"], False),
        ("cpu", ["--algo=IMPALA"], False),
        ("cpu", ["--ppo_epochs=1", "--num_batches_per_iteration=1"], False),
    ],
    ids=str,
)
def test_without_a_gpu_a_simulator_samples_ahead_where_the_learner_makes_up_for_the_lag(
    tmp_path, monkeypatch, device, flags, ahead
):
    monkeypatch.setattr(observation_defaults, "may_have_gpu", lambda device: device == "gpu")
    config, _ = simulated(tmp_path, 64, f"--device={device}", *flags)
    assert config.sampling.sample_ahead == ahead


@pytest.mark.parametrize(
    ("batch_size", "rollout", "num_batches"),
    [(24 * 1024, 24, 4), (16384, 32, 8), (24 * 4096, 24, 1), (2400, 25, 128)],
)
def test_a_minibatch_of_a_simulator_that_is_typed_decides_how_many_there_are(
    tmp_path, batch_size, rollout, num_batches
):
    config, _ = simulated(tmp_path, 4096, f"--batch_size={batch_size}")
    learning = config.learning
    assert (learning.rollout, learning.num_batches_per_iteration) == (rollout, num_batches)
    assert not config.sampling.async_rl


@pytest.mark.parametrize(("copies", "batch_size"), [(4096, 50000), (64, 1009)])
def test_a_minibatch_that_needs_many_rollouts_of_all_envs_is_not_waited_for(tmp_path, copies, batch_size):
    config, notes = simulated(tmp_path, copies, f"--batch_size={batch_size}")
    assert config.sampling.async_rl and config.learning.num_batches_per_iteration == 4
    assert any(note.is_warning and "--async_rl=False" in note.text for note in notes)


@pytest.mark.parametrize("copies", [8, 1024])
def test_a_simulator_of_pictures_learns_as_other_envs_of_pictures_do_in_one_process(tmp_path, copies):
    config, _ = simulated(tmp_path, copies, groups=(), obs=PICTURE, place=VECTOR)
    flags, sizes = with_lists(config.flat()), {"batch_size"}
    assert {flag: flags[flag] for flag in PICTURES if flag not in sizes} == with_lists(
        {flag: value for flag, value in PICTURES.items() if flag not in sizes}
    )
    assert config.learning.exploration_loss_coeff > 0 and config.learning.lr_schedule == "constant"
    of_batch, rest = divmod(
        config.learning.batch_size * config.learning.num_batches_per_iteration, copies * 64
    )
    assert of_batch in (1, 2) and not rest
    assert (config.sampling.num_workers, config.sampling.inline_samplers) == (1, 1)


def test_other_machines_have_as_many_simulators_as_this_one(tmp_path):
    assert simulated(tmp_path, 8, "--num_nodes=2", "--num_workers=3")[0].cluster.node_workers == 3
    assert simulated(tmp_path, 8, "--num_nodes=2", "--node_workers=2")[0].cluster.node_workers == 2


@pytest.mark.parametrize(
    ("groups", "of_critic"),
    [
        (("policy", "critic"), ("critic",)),
        (("actor", "critic"), ("critic",)),
        (("state", "privileged_state"), ("privileged_state",)),
        (("obs", "states"), ("states",)),
        (("policy/joints", "critic/joints", "critic/mass"), ("critic/joints", "critic/mass")),
        (("states",), ()),
        (("state", "critic"), ("critic",)),
        (("proprio", "critic"), ("critic",)),
    ],
    ids=str,
)
def test_a_critics_group_or_the_partner_of_a_known_group_is_for_the_critic_alone(tmp_path, groups, of_critic):
    assert simulated(tmp_path, 8, groups=groups)[0].model.critic_only_keys == of_critic
    assert simulated(tmp_path, 8, groups=groups, rgb=PICTURE)[0].model.critic_only_keys == of_critic
    assert not critic_keys(["critic"]), "the actor needs one"


def test_weights_that_are_to_be_shared_leave_no_group_to_the_critic_and_a_line_says_so(tmp_path):
    config, notes = simulated(tmp_path, 8, "--actor_critic_share_weights=True")
    assert config.model.shares_weights
    assert [note.text for note in notes if note.is_warning] == [
        "--actor_critic_share_weights=True: the actor observes critic, too"
    ]


@pytest.mark.parametrize("group", ["teacher", "privileged", "privileged_obs", "rnd_state"])
def test_groups_that_an_actor_should_not_observe_by_their_names_are_warned_of(tmp_path, group):
    _, notes = simulated(tmp_path, 8, groups=("policy", "critic", group))
    assert [note.text for note in notes if note.is_warning] == [
        f"The actor observes {group}; --critic_only_keys critic {group} leaves it to the critic"
    ]
    _, notes = simulated(tmp_path, 8, "--critic_only_keys", "critic", groups=("policy", "critic", group))
    assert not any(note.is_warning for note in notes)


def test_the_help_names_the_defaults_of_each_kind(capsys):
    with pytest.raises(SystemExit):
        parse_config(["--env=mine", "--help=all"], resolve_family)
    text = " ".join(capsys.readouterr().out.split())
    rates = [f"{flags['learning_rate']:g} for {observed}" for observed, flags in SETS.items()]
    assert f"(default: {', '.join(rates)})" in text
    assert "iteration of training (default: 2)" in text, "the default of the family"
