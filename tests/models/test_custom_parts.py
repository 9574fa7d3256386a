"""Cores, decoders and whole networks of users: what their factories get, and how faults are found."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import ModelFlags
from sample_factory.envs.env_registry import resolve_family
from sample_factory.models import network_registry
from sample_factory.models.actor_critic import ActorCritic, NetworkOutput
from sample_factory.models.network_checks import made_up_observations
from sample_factory.models.network_registry import (
    NetworkError,
    register_actor_critic,
    register_core,
    register_decoder,
    register_encoder,
    users_parts,
)
from sample_factory.models.policy_spec import make_policy_spec, probe_state_size
from sample_factory.models.towers import make_actor_critic
from sample_factory.runtime.registry import Registry

S = gym.spaces
VECTOR = S.Dict(obs=S.Box(-5, 5, (3,), np.float32))
ACTIONS = S.Discrete(2)
SIZE = 5
FLAGS = ["--env=gym_CartPole-v1", "--hidden_size=8", "--encoder_mlp_layers", "8", "--device=cpu"]


class Decaying(nn.Module):
    """Remembers a decaying sum of its inputs."""

    def __init__(self, flags, in_size):
        super().__init__()
        self.linear = nn.Linear(in_size, SIZE)
        nn.init.constant_(self.linear.bias, 0.25)
        self.out_size = SIZE
        self.state_size = SIZE

    def forward(self, x, rnn_state, resets):
        outputs = []
        for t, inputs in enumerate(self.linear(x)):
            if resets is not None:
                rnn_state = rnn_state * ~resets[t].unsqueeze(-1)
            rnn_state = torch.tanh(0.5 * rnn_state + inputs)
            outputs.append(rnn_state)
        return torch.stack(outputs), rnn_state


class Doubling(nn.Module):
    def __init__(self, flags, in_size):
        super().__init__()
        self.out_size = 2 * in_size

    def forward(self, x):
        return torch.cat((x, -x), dim=-1)


class Own(ActorCritic):
    """Shares a core between actor and critic; the action head is a lookup of the sign of the state."""

    state_size = SIZE

    def __init__(self, flags, observation_space, action_space):
        super().__init__(flags, observation_space, action_space)
        self.core = Decaying(flags, 3)
        self.head = nn.Linear(SIZE, self.num_logits + 1)

    def forward(self, observations, rnn_state, resets):
        x = observations["obs"].unflatten(0, (-1, len(rnn_state)))
        on_device = None if resets is None else torch.from_numpy(resets)
        outputs, rnn_state = self.core(x, rnn_state, on_device)
        heads = self.head(outputs)
        return NetworkOutput(heads[..., 1:], heads[..., 0], rnn_state)


def build(*spaces, **flags):
    """Builds the network of a run that names these classes."""
    return spec_of(*spaces, **flags).build().model


def trial(*spaces, **flags):
    """Tries out the network of a run that names these classes, as before a training."""
    return probe_state_size([spec_of(*spaces, **flags)])


def spec_of(space=VECTOR, actions=ACTIONS, family=None, **flags):
    registers = {
        "encoder_custom": register_encoder,
        "core_custom": register_core,
        "decoder_custom": register_decoder,
        "actor_critic_custom": register_actor_critic,
    }
    arguments = []
    for name, value in flags.items():
        if name in registers:
            registers[name]("mine", value)
            value = "mine"
        arguments.append(f"--{name}={value}")
    config = parse_config([*FLAGS, *arguments], resolve_family)
    return make_policy_spec(dataclasses.replace(config, family=family), space, actions)


@pytest.mark.parametrize("shares", [True, False])
def test_a_core_and_a_decoder_take_the_place_of_the_built_in_ones(shares):
    model = build(
        core_custom=Decaying,
        decoder_custom=Doubling,
        actor_critic_share_weights=shares,
        normalize_returns=True,
    )
    towers = model.each_tower()
    assert model.state_size == SIZE * len(towers) == SIZE * (2 - shares)
    assert towers[0].out_size == 2 * SIZE and model.action_head.linear.in_features == 2 * SIZE
    assert model.returns_normalizer is not None
    output = model.act({"obs": torch.randn(4, 3)}, torch.zeros(4, model.state_size))
    assert output.rnn_state.shape == (4, model.state_size) and output.rnn_state.dtype == torch.float32


class Layers(nn.Module):
    """Convolutions of every kind in a row, from [B, 3] to [B, 8]."""

    def __init__(self, flags, observation_space):
        super().__init__()
        kinds = [kind + str(n) for n in (1, 2, 3) for kind in ("Conv", "ConvTranspose")]
        self.layers = nn.ModuleList(getattr(nn, f"{kind}d")(3, 3, 1) for kind in kinds)
        self.last = nn.Linear(3, 8)
        self.out_size = 8

    def forward(self, observations):
        x = observations["obs"]
        for layer in self.layers:
            num_axes = len(layer.kernel_size)
            x = layer(x.reshape(-1, 3, *[1] * num_axes))
        return self.last(x.reshape(-1, 3))


def test_initialisation_reaches_linear_layers_and_convolutions_of_every_kind_of_a_custom_part():
    encoder = build(encoder_custom=Layers, policy_init_gain=1.5).each_tower()[0].encoder
    for layer in (*encoder.layers, encoder.last):
        matrix = layer.weight.detach().flatten(1)
        gram = matrix.T @ matrix
        torch.testing.assert_close(gram, 1.5**2 * torch.eye(3), rtol=0, atol=1e-5)
        assert (layer.bias == 0).all()


@pytest.mark.parametrize("initialization", ["orthogonal", "xavier_uniform"])
def test_frozen_parameters_stay_as_the_factory_made_them(initialization):
    def make(flags, observation_space):
        encoder = Features(flags, observation_space)
        encoder.layers = nn.ModuleList([nn.Linear(3, 3), nn.Conv2d(3, 3, 1), nn.Linear(3, 3)])
        for parameter in encoder.parameters():
            nn.init.constant_(parameter, 0.125)
        for parameter in (*encoder.layers[:2].parameters(), encoder.layers[2].bias):
            parameter.requires_grad_(False)
        return encoder

    encoder = build(encoder_custom=make, policy_initialization=initialization).each_tower()[0].encoder
    for parameter in encoder.parameters():
        assert parameter.eq(0.125).all() != parameter.requires_grad


def test_a_core_and_a_whole_network_keep_their_own_initialisation():
    core = build(core_custom=Decaying).each_tower()[0].core.core
    assert torch.equal(core.linear.bias, torch.full((SIZE,), 0.25))
    own = build(actor_critic_custom=Own).core
    assert torch.equal(own.linear.bias, torch.full((SIZE,), 0.25))


def test_in_bfloat16_a_core_keeps_its_float32_weights_and_acts():
    model = build(core_custom=Decaying)
    model.prepare_to_act(torch.bfloat16)
    assert {parameter.dtype for parameter in model.each_tower()[0].core.parameters()} == {torch.float32}
    with torch.autocast("cpu", torch.bfloat16):
        output = model.act({"obs": torch.randn(4, 3)}, torch.zeros(4, SIZE))
    assert output.rnn_state.dtype == output.values.dtype == torch.float32


class LayerNormed(nn.Module):
    """An encoder with a norm, which on a CPU needs weights of its input's dtype or float32."""

    def __init__(self, flags, observation_space):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, SIZE), nn.LayerNorm(SIZE))
        self.out_size = SIZE

    def forward(self, observations):
        return self.layers(observations["obs"])


class Convolving(nn.Module):
    def __init__(self, flags, observation_space):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 8, 4), nn.ELU(), nn.Flatten(), nn.Linear(8 * 8 * 11, 20))
        self.out_size = 20

    def forward(self, observations):
        return self.layers(observations["obs"])


class Precise(nn.Module):
    """An encoder or a decoder that computes in float32, whatever the precision of the network is."""

    def __init__(self, flags, given):
        super().__init__()
        self.linear = nn.Linear(8 if isinstance(given, int) else 3, SIZE)
        self.out_size = SIZE

    def forward(self, x):
        x = x["obs"] if isinstance(x, dict) else x
        with torch.autocast("cpu", enabled=False):
            return self.linear(x.float())


@pytest.mark.parametrize(
    ("parts", "space"),
    [
        ({"encoder_custom": LayerNormed}, VECTOR),
        ({"encoder_custom": Convolving}, S.Dict(obs=S.Box(0, 255, (3, 36, 48), np.uint8))),
        ({"encoder_custom": Precise}, VECTOR),
        ({"decoder_custom": Precise}, VECTOR),
    ],
)
def test_in_bfloat16_a_part_acts_as_it_learns(parts, space):
    torch.manual_seed(0)
    model = build(space, **parts)
    observations = made_up_observations(space, 1, 4, torch.device("cpu"))
    outputs = []
    for prepare in (lambda dtype: None, model.requires_grad_(False).prepare_to_act):
        prepare(torch.bfloat16)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            outputs.append(model.act(observations, torch.zeros(4, model.state_size), deterministic=True))
    torch.testing.assert_close(*outputs, rtol=2e-3, atol=2e-3)


class Sliced(nn.Module):
    """An encoder whose weights and buffers have gaps or overlaps in memory."""

    def __init__(self, flags, observation_space):
        super().__init__()
        self.linear = nn.Linear(3, SIZE)
        self.linear.weight = nn.Parameter(torch.randn(SIZE, 9)[:, ::3])
        self.linear.bias = nn.Parameter(torch.zeros(1).expand(SIZE))
        self.register_buffer("scale", torch.ones(1).expand(SIZE))
        self.register_buffer("graph", torch.eye(SIZE).to_sparse(), persistent=False)
        self.out_size = SIZE

    def forward(self, observations):
        return self.linear(observations["obs"]) * self.scale


def test_weights_of_any_layout_in_memory_can_be_loaded_and_have_neither_gaps_nor_overlaps():
    model = build(encoder_custom=Sliced)
    model.load_state_dict({name: torch.rand(x.shape).to(x.dtype) for name, x in model.state_dict().items()})
    assert all(tensor.is_contiguous() for tensor in model.state_dict().values())


class OwnWidths(nn.Module):
    """A core with a state as large as its input, which it returns as its output, delayed by one step."""

    def __init__(self, flags, in_size):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.out_size = self.state_size = in_size

    def forward(self, x, rnn_state, resets):
        outputs = []
        for t, inputs in enumerate(x):
            if resets is not None:
                rnn_state = rnn_state * ~resets[t].unsqueeze(-1)
            outputs.append(rnn_state * self.gain)
            rnn_state = inputs
        return torch.stack(outputs), rnn_state


def test_each_tower_keeps_its_own_part_of_the_state_however_wide_the_parts_are():
    space = S.Dict(obs=VECTOR["obs"], hidden=S.Box(-5, 5, (2,), np.float32))
    model = build(
        space,
        encoder_custom=Joining,
        core_custom=OwnWidths,
        critic_only_keys="hidden",
        normalize_input=False,
    )
    assert [tower.core.state_size for tower in model.each_tower()] == [3, 5] and model.state_size == 8
    rows = {"obs": torch.randn(4, 3), "hidden": torch.randn(4, 2)}
    state = model.act(rows, torch.zeros(4, 8)).rnn_state
    torch.testing.assert_close(state, torch.cat((rows["obs"], rows["hidden"], rows["obs"]), dim=-1))
    steps = {key: torch.stack([tensor] * 2) for key, tensor in rows.items()}
    assert model.unroll(steps, state).rnn_state.shape == (4, 8)


def test_without_an_rnn_a_custom_core_is_still_used_and_trained_in_chunks():
    assert build(core_custom=Decaying, use_rnn=False).state_size == SIZE
    for part in ("core_custom", "actor_critic_custom"):
        flags = [
            *FLAGS,
            "--use_rnn=False",
            f"--{part}=a:B",
            "--rollout=32",
            "--recurrence=8",
        ]
        assert parse_config(flags, resolve_family).chunk_length == 8


@dataclasses.dataclass(frozen=True)
class FamilyFlags:
    colours: int = flag(3, "colours of the map")


def test_each_factory_sees_the_flags_of_the_model_and_of_the_family_which_it_cannot_change():
    seen = {}

    def seeing(name, factory):
        def make(flags, *spaces):
            seen[name] = flags
            return factory(flags, *spaces)

        return make

    class Encoder(nn.Module):
        def __init__(self, flags, observation_space):
            super().__init__()
            self.out_size = 3

        def forward(self, observations):
            return observations["obs"]

    family = FamilyFlags(7)
    build(
        family=family,
        encoder_custom=seeing("encoder", Encoder),
        core_custom=seeing("core", Decaying),
        decoder_custom=seeing("decoder", Doubling),
    )
    build(family=family, actor_critic_custom=seeing("actor_critic", Own))
    assert len(seen) == 4
    for flags in seen.values():
        assert isinstance(flags, ModelFlags)
        assert (flags.colours, flags.hidden_size, flags.rnn_size) == (7, 8, 8)
        assert dataclasses.replace(flags, hidden_size=9).colours == 7
        with pytest.raises(dataclasses.FrozenInstanceError):
            flags.hidden_size = 9


class IgnoresResets(Decaying):
    def forward(self, x, rnn_state, resets):
        return super().forward(x, rnn_state, None)


class BatchFirst(Decaying):
    def forward(self, x, rnn_state, resets):
        outputs, _ = super().forward(x.transpose(0, 1), rnn_state[:1].expand(x.shape[0], -1), None)
        return outputs.transpose(0, 1), rnn_state


class KeepsStateInside(Decaying):
    def forward(self, x, rnn_state, resets):
        self.kept = getattr(self, "kept", 0.0) + x.mean()
        outputs, rnn_state = super().forward(x, rnn_state, resets)
        return outputs + self.kept, rnn_state


class TooSmallState(Decaying):
    def __init__(self, flags, in_size):
        super().__init__(flags, in_size)
        self.state_size = SIZE - 1


class LargerState(Decaying):
    def forward(self, x, rnn_state, resets):
        outputs, rnn_state = super().forward(x, rnn_state, resets)
        return outputs, torch.cat((rnn_state, rnn_state), dim=-1)


class OutputsOnly(Decaying):
    def forward(self, x, rnn_state, resets):
        return super().forward(x, rnn_state, resets)[0]


class Joining(nn.Module):
    """An encoder that returns its observations beside each other."""

    def __init__(self, flags, observation_space):
        super().__init__()
        self.out_size = sum(space.shape[0] for space in observation_space.values())

    def forward(self, observations):
        return torch.cat([observations[key] for key in sorted(observations)], dim=-1)


class SwapsAxes(Own):
    def forward(self, observations, rnn_state, resets):
        output = super().forward(observations, rnn_state, resets)
        return output._replace(values=output.values.t())


class WithoutParameters(ActorCritic):
    pass


class Features(nn.Module):
    """An encoder of 3 features per row."""

    def __init__(self, flags, observation_space, out_size=3):
        super().__init__()
        self.out_size = out_size

    def forward(self, observations):
        return observations["obs"]


class BadProperty(nn.Module):
    def __init__(self, flags, observation_space):
        super().__init__()

    @property
    def out_size(self):
        return self.width


class Raising(Features):
    def forward(self, observations):
        return observations["pixels"]


class Doubles(Features):
    def forward(self, observations):
        return observations["obs"].double()


class InRange(Features):
    """Refuses observations that its space does not have."""

    def forward(self, observations):
        assert (observations["obs"] >= 2).all()
        return observations["obs"]


class ReturningTuple(Features):
    def forward(self, observations):
        return observations["obs"], None


def sleepy(flags, observation_space):
    """An encoder with a layer whose size is not known before it is called."""
    module = nn.Sequential(nn.Flatten(), nn.LazyLinear(8))
    module.out_size = 8
    return module


FAULTS = [
    ("core", TooSmallState, r"state_size 4\): forward raised RuntimeError: The size of tensor a \(4\)"),
    ("core", LargerState, r"an rnn_state of shape \[3, 10\]; .* \[3, 5\]: \[B, state_size\]"),
    ("core", OutputsOnly, "raised TypeError: it should return a tuple of outputs and rnn_state"),
    ("core", Doubling, "core Doubling needs an int attribute state_size"),
    (
        "core",
        lambda flags, in_size: "core",
        r"core mine: its factory returned a str; .*factory\(flags, in_size",
    ),
    (
        "core",
        lambda flags: None,
        r"its factory raised TypeError: .*; it should be a factory\(flags, in_size\)",
    ),
    (
        "decoder",
        lambda flags, in_size: nn.Linear(in_size, 3),
        "decoder Linear needs an int attribute out_size, the width of its output: ",
    ),
    ("actor_critic", SwapsAxes, r"values of shape \[3, 4\]; it should be \[4, 3\]: \[T, B\]"),
    ("actor_critic", WithoutParameters, "actor-critic mine has no parameters to train"),
    (
        "actor_critic",
        lambda *_: nn.Linear(2, 2),
        "returned a Linear; .* factory.* that returns a .*ActorCritic",
    ),
    (
        "encoder",
        lambda *_: Features(*_, 64),
        r"out_size of the encoder 64, .*: forward raised .* \(12x3 and 64x",
    ),
    (
        "encoder",
        lambda *_: Features(*_, "5"),
        "an int attribute out_size, the width of its output: 'str' object",
    ),
    ("encoder", BadProperty, "out_size, the width of its output: .* no attribute"),
    ("encoder", sleepy, r"encoder mine: 1.weight has no size yet"),
    ("encoder", "json:__name__", "encoder mine is a str; it should be a factory"),
    ("encoder", Raising, "encoder mine .*: forward raised KeyError: 'pixels'"),
    ("encoder", ReturningTuple, "encoder mine .*: forward raised TypeError: .*must be Tensor, not tuple"),
]


class Projected(Features):
    """Encodes by random numbers, kept in a way that subclasses choose."""

    def __init__(self, flags, observation_space):
        super().__init__(flags, observation_space, SIZE)
        self.keep(torch.randn(3, SIZE))

    def keep(self, numbers):
        self.numbers = numbers

    def forward(self, observations):
        return observations["obs"] @ self.numbers


class ProjectedByBuffer(Projected):
    def keep(self, numbers):
        self.register_buffer("numbers", numbers, persistent=False)


class ProjectedBySavedBuffer(Projected):
    def keep(self, numbers):
        self.register_buffer("numbers", numbers)


class OwnProjected(Own):
    """Starts with a head of zeros, behind which nothing can be seen."""

    def __init__(self, *args):
        super().__init__(*args)
        self.numbers = torch.randn(3)
        nn.init.zeros_(self.head.weight)

    def forward(self, observations, rnn_state, resets):
        return super().forward({"obs": observations["obs"] * self.numbers}, rnn_state, resets)


class Normed(Features):
    def __init__(self, flags, observation_space):
        super().__init__(flags, observation_space)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, observations):
        return self.norm(observations["obs"])


class PretrainedNetwork(Own):
    """Keeps a batch norm in evaluation mode, by a `train` that returns nothing."""

    def __init__(self, *args):
        super().__init__(*args)
        self.norm = nn.BatchNorm1d(3)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()

    def forward(self, observations, rnn_state, resets):
        return super().forward({"obs": self.norm(observations["obs"])}, rnn_state, resets)


class NormedAsPretrained(Normed):
    def train(self, mode=True):
        return super().train(False)


class Lazy(Features):
    """Makes its layer in the first call."""

    def __init__(self, flags, observation_space):
        super().__init__(flags, observation_space, SIZE)
        self.layer = None

    def forward(self, observations):
        if self.layer is None:
            self.layer = nn.Linear(3, SIZE)
        return self.layer(observations["obs"])


class Gated(Projected):
    """Starts as a constant: the gate is 0."""

    def __init__(self, flags, observation_space):
        super().__init__(flags, observation_space)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, observations):
        return self.gate * super().forward(observations)


class CentresRows(Features):
    def forward(self, observations):
        return observations["obs"] - observations["obs"].mean(dim=0)


class DropsAxesOfOne(Own):
    def forward(self, observations, rnn_state, resets):
        output = super().forward(observations, rnn_state, resets)
        return output._replace(values=output.values.squeeze())


class Tied(Projected):
    """Has one matrix under two names, and a frozen bias."""

    def __init__(self, flags, observation_space):
        super().__init__(flags, observation_space)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.layers[1].weight = self.layers[0].weight
        self.layers[1].bias.requires_grad_(False)

    def keep(self, numbers):
        self.numbers = nn.Parameter(numbers)

    def forward(self, observations):
        return super().forward({"obs": self.layers[1](self.layers[0](observations["obs"]))})


COPIES_DIFFER = [
    ("core", IgnoresResets, r"core mine .*: its .* differ by .* unrolling: where resets \[T, B\] is True"),
    ("core", BatchFirst, "differ by .* unrolling: forward over T steps of B rows should give the same"),
    ("core", KeepsStateInside, "differ by .* between acting and unrolling: forward over T steps"),
    ("encoder", CentresRows, "differ by .* between acting and unrolling: forward over T steps"),
    ("actor_critic", DropsAxesOfOne, r"values of shape \[\]; it should be \[1, 1\]: \[T, B\]"),
    ("encoder", Lazy, "same state_dict"),
    ("encoder", Gated, "same state_dict"),
    ("encoder", Projected, "a network with encoder mine .*: its .* differ .* same state_dict"),
    ("encoder", ProjectedByBuffer, "same state_dict, so learner and actors .* persistent buffers"),
    ("actor_critic", OwnProjected, "actor-critic mine: its logits differ .* same state_dict"),
    ("encoder", Normed, "between training and evaluation mode.*leave out dropout and batch norm"),
    ("encoder", ProjectedBySavedBuffer, None),
    ("encoder", NormedAsPretrained, None),
    ("actor_critic", PretrainedNetwork, None),
    ("encoder", Tied, None),
    ("encoder", lambda *_: Features(*_, np.int64(3)), None),
    ("core", Decaying, None),
]


@pytest.mark.parametrize(("part", "factory", "message"), [*FAULTS, *COPIES_DIFFER])
@pytest.mark.parametrize("space", [VECTOR, S.Dict(obs=S.Box(0, 1, (3,), np.float32))])
def test_a_part_that_is_faulty_or_differs_between_actors_and_learners_is_refused_in_one_line(
    part, factory, message, space
):
    parts = {f"{part}_custom": factory}
    if message is None:
        trial(space, **parts)
        return
    with pytest.raises(NetworkError, match=message) as error:
        trial(space, **parts)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("flags", [{"rnn_type": "mingru"}, {"use_rnn": False, "decoder_mlp_layers": 8}])
def test_parts_that_do_not_fit_together_are_found_by_acting_once(flags):
    with pytest.raises(NetworkError, match="a network with encoder mine .*: forward raised .*: .*[dD]ouble"):
        trial(encoder_custom=Doubles, **flags)
    low = S.Dict(obs=S.Box(2, 5, (3,), np.float32))
    trial(low, encoder_custom=InRange, normalize_input=False, **flags)


def test_a_whole_network_acts_on_every_kind_of_observation_and_masks_actions():
    space = S.Dict(
        obs=VECTOR["obs"], picture=S.Box(0, 255, (3, 4, 4), np.uint8), action_mask=S.Box(0, 1, (2,))
    )
    model = build(space, actor_critic_custom=Own)
    rows = {
        "obs": torch.randn(4, 3),
        "picture": torch.zeros(4, 3, 4, 4, dtype=torch.uint8),
        "action_mask": torch.tensor([[0.0, 1.0]] * 4),
    }
    assert model.act(rows, torch.zeros(4, SIZE)).actions.eq(1).all()
    unrolled = model.unroll({key: tensor[None] for key, tensor in rows.items()}, torch.zeros(4, SIZE))
    assert unrolled.beliefs is None


def test_the_size_of_the_state_is_learned_by_building_the_network():
    register_core("mine", Decaying)
    config = parse_config([*FLAGS, "--core_custom=mine"], resolve_family)
    spec = make_policy_spec(config, VECTOR, ACTIONS)
    assert probe_state_size([spec, spec]) == SIZE

    def as_wide_as_its_input(flags, in_size):
        core = Doubling(flags, in_size)
        core.state_size = in_size
        core.forward = lambda x, rnn_state, resets: (torch.cat((x, x), dim=-1), rnn_state)
        return core

    register_core("mine", as_wide_as_its_input)
    config = parse_config([*FLAGS, "--core_custom=mine"], resolve_family)
    raw = dataclasses.replace(config.model, encoder_custom="tests.models.test_custom_parts:Raw")
    config = dataclasses.replace(config, model=raw)
    spaces = [S.Dict(obs=S.Box(-1, 1, (size,), np.float32)) for size in (3, 4)]
    specs = [make_policy_spec(config, space, ACTIONS) for space in spaces]
    with pytest.raises(NetworkError, match=r"states of \[3, 4\] floats; state_size should be the same"):
        probe_state_size(specs)


class Raw(nn.Module):
    def __init__(self, flags, observation_space):
        super().__init__()
        (self.out_size,) = observation_space["obs"].shape

    def forward(self, observations):
        return observations["obs"]


class Lerp(Own):
    def forward(self, observations, rnn_state, resets):
        output = super().forward(observations, rnn_state, resets)
        torch.lerp(self.core.linear(observations["obs"]), observations["obs"][:, :1].expand(-1, SIZE), 0.5)
        return output


def test_a_network_that_fails_under_autocast_alone_is_found_too():
    trial(actor_critic_custom=Lerp, precision="fp32")
    with pytest.raises(NetworkError, match="forward.* raised RuntimeError: .*dtype"):
        trial(actor_critic_custom=Lerp, precision="bf16")
    trial(actor_critic_custom=Own, precision="bf16")
    trial(core_custom=Decaying, decoder_custom=Doubling, precision="bf16")


def test_an_unknown_part_is_refused_with_the_nearest_name():
    register_core("gated", Decaying)
    with pytest.raises(ConfigError, match="--core_custom=gate is unknown; did you mean gated"):
        make_actor_critic(ModelFlags(core_custom="gate"), VECTOR, ACTIONS)


def test_an_encoder_under_a_built_in_name_is_the_user_s_own(monkeypatch):
    assert not users_parts(ModelFlags(encoder_custom="map"))
    monkeypatch.setitem(network_registry._REGISTRIES, "encoder", Registry("encoder_custom", {"map": Raw}))
    assert users_parts(ModelFlags(encoder_custom="map")) == {"encoder": "map"}


@pytest.mark.parametrize("flags", [["--use_cpc=True"], ["--compile=True"]])
def test_what_needs_the_built_in_network_is_refused_with_a_whole_network(flags):
    with pytest.raises(ConfigError, match="actor_critic_custom=a:B does not work .* of the built-in network"):
        parse_config([*FLAGS, "--actor_critic_custom=a:B", *flags], resolve_family)
