import copy
import io

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models import towers
from sample_factory.models.action_distributions import FORBIDDEN_LOGIT
from sample_factory.models.encoders import IndexLinear
from sample_factory.models.policy_spec import state_size
from sample_factory.models.towers import make_actor_critic
from sample_factory.spaces.observations import Indices

S = gym.spaces
STEPS = 7
ROWS = 4
SMALL = {"hidden_size": 16, "encoder_mlp_layers": (12,)}
IMAGE = S.Dict(
    obs=S.Box(0, 255, (3, 36, 48), np.uint8),
    place=Indices((40, 2)),
    speed=S.Box(-np.inf, np.inf, (3,), np.float32),
)
VECTOR = S.Dict(obs=S.Box(-np.inf, np.inf, (3,), np.float32))
MASKED = S.Dict(obs=VECTOR["obs"], action_mask=S.Box(0, 1, (9,), np.uint8))
ACTIONS = S.Tuple([S.Discrete(3), S.Discrete(2), S.Discrete(4)])
MIXED = S.Tuple([S.Discrete(3), S.Box(-1, 1, (2,)), S.Discrete(2), S.Box(-1, 1, (1,))])
MIXED_MEANS = [3, 4, 9]
MIXED_LOG_STDS = [5, 6, 10]

DOOM_OBSERVATIONS = S.Dict(
    obs=S.Box(0, 255, (3, 72, 128), np.uint8), measurements=S.Box(-np.inf, np.inf, (23,), np.float32)
)
DOOM_ACTIONS = S.Tuple([S.Discrete(n) for n in (3, 3, 2, 2, 11)])


def make_model(observation_space=VECTOR, action_space=ACTIONS, normalize_returns=False, **flags):
    torch.manual_seed(0)
    flags = ModelFlags(**{**SMALL, **flags})
    return make_actor_critic(flags, observation_space, action_space, normalize_returns)


def random_observations(space, *batch):
    rng = np.random.default_rng(0)
    observations = {}
    for key, box in space.spaces.items():
        shape = (*batch, *box.shape)
        high = 256 if key == "obs" else 2
        values = rng.normal(size=shape) if box.dtype == np.float32 else rng.integers(0, high, shape)
        observations[key] = torch.from_numpy(values.astype(box.dtype))
    if "action_mask" in observations:
        observations["action_mask"][..., [0, 3, 5]] = 1  # something is always allowed
    return observations


def random_resets():
    return np.random.default_rng(1).random((STEPS, ROWS)) < 0.2


VARIANTS = {
    "default": {},
    "lstm": {"rnn_type": "lstm", "rnn_num_layers": 2},
    "mingru": {"rnn_type": "mingru", "rnn_num_layers": 2},
    "gtrxl": {"rnn_type": "gtrxl", "rnn_num_layers": 2, "gtrxl_memory": 4},
    "no rnn": {"use_rnn": False},
    "separate": {"actor_critic_share_weights": False},
    "separate lstm": {"actor_critic_share_weights": False, "rnn_type": "lstm"},
    "separate mingru": {"actor_critic_share_weights": False, "rnn_type": "mingru"},
    "separate gtrxl": {"actor_critic_share_weights": False, "rnn_type": "gtrxl"},
    "decoder": {"decoder_mlp_layers": (10, 6)},
    "fixed deviation": {"adaptive_stddev": False, "initial_stddev": 0.5},
    "tanh": {"continuous_tanh_scale": 2.0},
}


@pytest.mark.parametrize("action_space", [ACTIONS, MIXED], ids=["discrete", "mixed"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_acting_and_then_unrolling_give_the_same_log_probs(variant, action_space):
    model = make_model(action_space=action_space, **VARIANTS[variant])
    observations = random_observations(VECTOR, STEPS, ROWS)
    resets = random_resets()
    first_state = torch.randn(ROWS, model.state_size)
    state = first_state
    steps = []
    for t in range(STEPS):
        state = torch.where(torch.from_numpy(resets[t]).unsqueeze(-1), 0.0, state)
        steps.append(model.act({key: x[t] for key, x in observations.items()}, state))
        state = steps[-1].rnn_state
    unrolled = model.unroll(observations, first_state, resets)
    log_probs = model.distribution(unrolled.logits).log_prob(torch.stack([step.actions for step in steps]))
    for ours, name in ((log_probs, "log_probs"), (unrolled.values, "values"), (unrolled.logits, "logits")):
        acted = torch.stack([getattr(step, name) for step in steps])
        torch.testing.assert_close(ours, acted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_shapes_and_types(variant):
    model = make_model(IMAGE, MIXED, **VARIANTS[variant])
    out = model.act(random_observations(IMAGE, ROWS), torch.zeros(ROWS, model.state_size))
    shapes = {
        "actions": (ROWS, 5),
        "log_probs": (ROWS,),
        "values": (ROWS,),
        "logits": (ROWS, 11),
        "rnn_state": (ROWS, model.state_size),
    }
    for name, tensor in out._asdict().items():
        assert tensor.shape == shapes[name] and tensor.dtype == torch.float32 and not tensor.requires_grad
    assert (model.num_logits, model.num_action_values) == (11, 5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_state_size_is_known_without_a_network(variant):
    flags = ModelFlags(**{**SMALL, **VARIANTS[variant]})
    assert make_actor_critic(flags, VECTOR, ACTIONS).state_size == state_size(flags)


def test_time_and_batch_may_come_flat():
    model = make_model(IMAGE)
    observations = random_observations(IMAGE, STEPS, ROWS)
    state = torch.zeros(ROWS, model.state_size)
    flat = {key: x.flatten(0, 1) for key, x in observations.items()}
    torch.testing.assert_close(model.unroll(flat, state), model.unroll(observations, state), rtol=0, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_learns(variant):
    model = make_model(IMAGE, MIXED, **VARIANTS[variant])
    observations = random_observations(IMAGE, STEPS, ROWS)
    state = torch.zeros(ROWS, model.state_size)
    unrolled = model.unroll(observations, state, random_resets())
    distribution = model.distribution(unrolled.logits)
    (distribution.log_prob(distribution.sample()).sum() + unrolled.values.sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_separate_towers_do_not_influence_each_other():
    model = make_model(actor_critic_share_weights=False)
    observations = random_observations(VECTOR, STEPS, ROWS)
    state = torch.randn(ROWS, 32)
    before = model.unroll(observations, state)
    critic_changed = state.clone()
    critic_changed[:, 16:] += 1
    after = model.unroll(observations, critic_changed)
    assert torch.equal(before.logits, after.logits) and not torch.equal(before.values, after.values)


def test_deterministic_actions_are_the_mode():
    model = make_model(action_space=MIXED)
    observations = random_observations(VECTOR, ROWS)
    outputs = [model.act(observations, torch.zeros(ROWS, 16), deterministic=True) for _ in range(2)]
    assert torch.equal(outputs[0].actions, outputs[1].actions)
    assert torch.equal(outputs[0].actions, model.distribution(outputs[0].logits).mode())


@pytest.mark.parametrize(("space", "boxes"), [(MIXED, [1, 2, 4]), (MIXED[1], [0, 1]), (ACTIONS, [])])
def test_continuous_actions_may_be_the_mean_while_the_others_are_drawn(space, boxes):
    model = make_model(action_space=space)
    observations = random_observations(VECTOR, 64)
    output = model.act(observations, torch.zeros(64, 16), samples_continuous=False)
    distribution = model.distribution(output.logits)
    same = output.actions == distribution.mode()
    for column in range(model.num_action_values):
        assert same[:, column].all() == (column in boxes)
    torch.testing.assert_close(output.log_probs, distribution.log_prob(output.actions))


def test_doom_battle_has_the_size_of_the_paper():
    model = make_actor_critic(ModelFlags(encoder_custom="vizdoom"), DOOM_OBSERVATIONS, DOOM_ACTIONS)
    assert model.num_logits == 21
    assert sum(p.numel() for p in model.parameters()) == 3_096_438


def test_doom_encodes_every_further_observation():
    picture, place = S.Box(0, 255, (1, 3, 72, 128), np.uint8), S.Box(-9, 9, (2,), np.float32)
    space = S.Dict({**DOOM_OBSERVATIONS.spaces, "others/obs": picture, "place": place})
    model = make_actor_critic(ModelFlags(encoder_custom="vizdoom"), space, DOOM_ACTIONS)
    observations = random_observations(space, 2)
    values = model.act(observations, torch.zeros(2, model.state_size)).values
    for key in space.spaces:
        changed = {**observations, key: observations[key] // 2}
        assert (model.act(changed, torch.zeros(2, model.state_size)).values != values).all(), key


def layers_of(model):
    return [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]


def test_orthogonal_initialisation_reaches_every_layer():
    for layer in layers_of(make_model(IMAGE, policy_init_gain=1.5)):
        weight = layer.weight.detach().flatten(1)
        small = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
        torch.testing.assert_close(small, 1.5**2 * torch.eye(len(small)), rtol=1e-4, atol=1e-4)
        assert (layer.bias == 0).all()


def test_a_layer_that_is_too_large_for_it_starts_nearly_orthogonal(monkeypatch):
    monkeypatch.setattr(towers, "LARGE_LAYER", 64 * 2999)
    wide = S.Dict(obs=S.Box(-1, 1, (3000,)))
    weight = layers_of(make_model(wide, policy_init_gain=1.5, encoder_mlp_layers=(64,)))[0].weight.detach()
    torch.testing.assert_close(weight @ weight.T, 1.5**2 * torch.eye(64), rtol=0, atol=0.3)


def test_the_table_of_a_discrete_observation_starts_with_the_scale_of_an_orthogonal_matrix():
    for n in (3, 5000):
        model = make_model(S.Dict(obs=Indices((n,))), policy_init_gain=1.5, encoder_mlp_layers=(64,))
        (table,) = [module for module in model.modules() if isinstance(module, IndexLinear)]
        expected = nn.init.orthogonal_(torch.empty(n, 64), gain=1.5).std()
        assert float(table.weight.detach().std()) == pytest.approx(float(expected), rel=0.15)
        assert (table.bias == 0).all()


def test_xavier_initialisation_reaches_every_layer():
    for layer in layers_of(make_model(IMAGE, policy_initialization="xavier_uniform")):
        fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(layer.weight)
        bound = (6 / (fan_in + fan_out)) ** 0.5
        assert 0.5 * bound < layer.weight.abs().max() <= bound
        assert (layer.bias == 0).all()


def test_torch_default_initialisation_leaves_layers_alone():
    layers = layers_of(make_model(policy_initialization="torch_default"))
    assert any((layer.bias != 0).any() for layer in layers)


def test_recurrent_cells_keep_their_initialisation():
    biases = [p for name, p in make_model().named_parameters() if "rnn.bias" in name]
    assert biases and all((bias != 0).all() for bias in biases)


def test_the_mask_is_in_the_logits_of_acting_and_of_learning():
    model = make_model(MASKED)
    observations = random_observations(MASKED, STEPS, ROWS)
    forbidden = observations["action_mask"] == 0
    unrolled = model.unroll(observations, torch.zeros(ROWS, 16))
    assert ((unrolled.logits == FORBIDDEN_LOGIT) == forbidden).all()
    for _ in range(20):
        out = model.act({key: x[0] for key, x in observations.items()}, torch.zeros(ROWS, 16))
        taken = nn.functional.one_hot(out.actions[:, 0].long(), 3)
        assert not (taken.bool() & forbidden[0, :, :3]).any()
    assert torch.isfinite(out.log_probs).all()


def test_the_learned_deviation_starts_at_its_flag_and_does_not_depend_on_the_observation():
    model = make_model(action_space=MIXED, adaptive_stddev=False, initial_stddev=0.25)
    logits = model.unroll(random_observations(VECTOR, STEPS, ROWS), torch.zeros(ROWS, 16)).logits
    log_stds = logits[..., MIXED_LOG_STDS]
    torch.testing.assert_close(log_stds, torch.full_like(log_stds, 0.25).log())
    assert logits[..., MIXED_MEANS].std(dim=(0, 1)).min() > 0


def test_tanh_squashes_means_only():
    model = make_model(action_space=MIXED, continuous_tanh_scale=2.0)
    plain = make_model(action_space=MIXED)
    for some in (model, plain):
        nn.init.constant_(some.action_head.linear.bias, 50.0)
    observations = random_observations(VECTOR, STEPS, ROWS)
    state = torch.zeros(ROWS, 16)
    squashed, free = (some.unroll(observations, state).logits for some in (model, plain))
    torch.testing.assert_close(squashed[..., MIXED_MEANS], torch.full((STEPS, ROWS, 3), 2.0))
    others = [i for i in range(11) if i not in MIXED_MEANS]
    torch.testing.assert_close(squashed[..., others], free[..., others])


def test_normalisers_change_in_update_only():
    model = make_model(IMAGE, normalize_returns=True)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    observations = random_observations(IMAGE, STEPS, ROWS)
    model.unroll(observations, torch.zeros(ROWS, 16))
    model.act({key: x[0] for key, x in observations.items()}, torch.zeros(ROWS, 16))
    torch.testing.assert_close(dict(model.state_dict()), before)
    model.observation_normalizers.update(observations, torch.zeros(STEPS, ROWS, dtype=torch.bool))
    torch.testing.assert_close(dict(model.state_dict()), before)
    model.observation_normalizers.update(observations)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert {key.rsplit(".", 1)[-1] for key in changed} == {"mean", "variance", "count"}
    assert not any("returns" in key for key in changed)


@pytest.mark.parametrize("variant", VARIANTS)
def test_state_dict_round_trip_with_weights_only(variant):
    model = make_model(IMAGE, MIXED, normalize_returns=True, **VARIANTS[variant])
    observations = random_observations(IMAGE, STEPS, ROWS)
    state = torch.randn(ROWS, model.state_size)
    model.observation_normalizers.update(observations)
    model.returns_normalizer.update(torch.randn(9))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    torch.manual_seed(123)
    flags = ModelFlags(**{**SMALL, **VARIANTS[variant]})
    again = make_actor_critic(flags, IMAGE, MIXED, normalize_returns=True)
    again.load_state_dict(torch.load(file, weights_only=True))
    unrolls = [some.unroll(observations, state) for some in (again, model)]
    torch.testing.assert_close(*unrolls, rtol=0, atol=0)
    assert again.returns_normalizer.count == 10


@pytest.mark.parametrize("variant", VARIANTS)
def test_autocast_keeps_outputs_float32_and_close(variant):
    model = make_model(IMAGE, MIXED, **VARIANTS[variant])
    observations = random_observations(IMAGE, STEPS, ROWS)
    state = torch.zeros(ROWS, model.state_size)
    model.observation_normalizers.update(observations)
    exact = model.unroll(observations, state, random_resets())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.unroll(observations, state, random_resets())
        out = model.act({key: x[0] for key, x in observations.items()}, state)
    for ours, expected in ((rounded.logits, exact.logits), (rounded.values, exact.values)):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, expected, rtol=0.1, atol=0.1)
    assert {tensor.dtype for tensor in out} == {torch.float32}


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_bfloat16_the_learner_sees_the_log_probs_that_were_acted_with(variant):
    learner = make_model(IMAGE, **VARIANTS[variant])
    actor = copy.deepcopy(learner).requires_grad_(False)
    actor.prepare_to_act(torch.bfloat16)
    observations = random_observations(IMAGE, STEPS, ROWS)
    resets = random_resets()
    first_state = torch.randn(ROWS, actor.state_size)
    state = first_state
    steps = []
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for t in range(STEPS):
            state = torch.where(torch.from_numpy(resets[t]).unsqueeze(-1), 0.0, state)
            steps.append(actor.act({key: x[t] for key, x in observations.items()}, state))
            state = steps[-1].rnn_state
    actions, acted = (
        torch.stack([getattr(step, name) for step in steps]) for name in ("actions", "log_probs")
    )
    with torch.autocast("cpu", torch.bfloat16):
        unrolled = learner.unroll(observations, first_state, resets)
    ratio = (learner.distribution(unrolled.logits).log_prob(actions) - acted).exp()
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0, atol=2e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_prepared_to_act_does_so_as_autocast_does(variant):
    model, new = (make_model(IMAGE, MIXED, policy_init_gain=gain, **VARIANTS[variant]) for gain in (1.0, 0.5))
    model.requires_grad_(False).prepare_to_act(torch.bfloat16)
    observations = random_observations(IMAGE, ROWS)
    state = torch.randn(ROWS, model.state_size)
    weights = {key: value + 0.01 for key, value in new.state_dict().items()}
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        before = model.act(observations, state, deterministic=True)
    for some in (model, new):
        some.load_state_dict(weights)  # float32 weights can still be loaded
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        ours, expected = (some.act(observations, state, deterministic=True) for some in (model, new))
    assert not torch.equal(before.logits, ours.logits)
    for mine, theirs in zip(ours, expected):
        torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=2e-3)


def test_prepare_to_act_rounds_the_towers_but_neither_heads_nor_statistics():
    model = make_model(IMAGE, normalize_returns=True)
    model.prepare_to_act(torch.bfloat16)
    for name, tensor in model.state_dict().items():
        is_rounded = name.startswith("towers.") and ".table." not in name  # autocast does not round tables
        assert (tensor.dtype == torch.bfloat16) == is_rounded, name
