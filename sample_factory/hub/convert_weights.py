"""Weights, normalisers and optimizer moments of Sample Factory 1 and 2 in the network of this version.

The layers are the same ones in the same order; only their names differ, and the form of the normalisers.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from sample_factory.config.flags import ConfigError
from sample_factory.models.encoders import MultiInputEncoder
from sample_factory.models.family_encoders import VizdoomEncoder
from sample_factory.models.normalizers import FixedNormalizer, RunningNormalizer
from sample_factory.models.towers import Tower, TowerActorCritic

OLD_EPS = 1e-5  # of the normalisers of version 2, added to the variance
OLD_KEY = "obs"  # the only observation that obs_subtract_mean and obs_scale changed
OLD_NORMALIZERS = "obs_normalizer.running_mean_std.running_mean_std."
OLD_BUFFERS = ("running_mean", "running_var", "count")


def load_network(
    checkpoint: Mapping[str, Any], model: TowerActorCritic, version: int, subtract: float, scale: float
) -> dict[int, dict[str, Tensor]]:
    """Loads weights and statistics of an old network into a model of this version, and converts the state of
    its optimizer.

    checkpoint: contents of a checkpoint of version 1 or 2.
    subtract, scale: obs_subtract_mean and obs_scale of the old experiment.
    Returns index of a parameter in `model` -> state of Adam or LAMB; empty if the old state cannot be used.
    Raises ConfigError, naming the layer, if a layer has no counterpart or another shape.
    """
    old: Mapping[str, Tensor] = checkpoint["model"]
    own = model.state_dict()
    old_names: dict[str, str] = {}  # name here -> name there; the layers with a prefix have the same order
    for prefix, old_prefix in _prefixes(model, version):
        names = [name for name in own if name.startswith(prefix)]
        old_names.update(zip(names, [name for name in old if name.startswith(old_prefix)]))
    for name, old_name in old_names.items():
        here, there = list(own[name].shape), list(old[old_name].shape)
        if here != there:
            raise ConfigError(
                f"layer {old_name} has shape {there}, and {here} would fit: the spaces of the env or a flag "
                "differ from those of its training"
            )
    state = {name: old[old_name] for name, old_name in old_names.items()}
    statistics, used = _statistics(old, model, subtract, scale)
    state.update(statistics)
    unused = [name for name in old if name not in used and name not in old_names.values()]
    if unused:
        raise ConfigError(f"layer {unused[0]} has no counterpart here; it cannot be converted")
    absent = [name for name in own if name not in state]
    if absent:
        raise ConfigError(f"layer {absent[0]} has no counterpart in the old checkpoint")
    is_rescaled = _rescale_first_layers(state, model, subtract, scale)
    model.load_state_dict(state)
    return {} if is_rescaled else _moments(checkpoint.get("optimizer", {}), old, old_names, model)


def _prefixes(model: TowerActorCritic, version: int) -> Iterator[tuple[str, str]]:
    """Yields pairs of prefixes of layer names for the same layers: in the model, and in the old network."""
    towers = model.each_tower()
    for i, tower in enumerate(towers):
        old = ("actor_", "critic_")[i] if len(towers) > 1 else ""
        own = f"towers.{i}."
        yield from _encoder_prefixes(tower, f"{own}encoder.", f"{old}encoder.", version)
        yield f"{own}core.rnn.", f"{old}core.core."
        yield f"{own}decoder.", f"{old}decoder.mlp."
    yield "action_head.linear.", "action_parameterization.distribution_linear."
    yield "action_head.learned_log_std", "action_parameterization.learned_stddev"
    yield "critic_head.", "critic_linear."


def _encoder_prefixes(tower: Tower, own: str, old: str, version: int) -> Iterator[tuple[str, str]]:
    encoder = tower.encoder
    if isinstance(encoder, VizdoomEncoder):
        yield f"{own}image_encoder.", f"{old}basic_encoder."
        yield f"{own}measurements_encoder.", f"{old}measurements_head."
        return
    for i, keys in enumerate(cast(MultiInputEncoder, encoder).groups):
        if version == 1 and keys != (OLD_KEY,):
            raise ConfigError(
                f"observation {', '.join(keys)}: the built-in encoders of version 1 encode {OLD_KEY} only; "
                "it cannot be converted"
            )
        if len(keys) > 1:
            raise ConfigError(
                f"layer {old}encoders.{keys[0]}: version 2 had an MLP for each of the vectors "
                f"{', '.join(keys)}, and here one MLP encodes all of them; it cannot be converted"
            )
        yield f"{own}encoders.{i}.", old if version == 1 else f"{old}encoders.{keys[0]}."


def _statistics(
    old: Mapping[str, Tensor], model: TowerActorCritic, subtract: float, scale: float
) -> tuple[dict[str, Tensor], set[str]]:
    """Converts the buffers of the old running normalisers. Returns name -> buffer of the model, and the names
    of the old tensors that were used. Statistics of this version describe raw samples x, but old statistics
    of the observation "obs" described (x - subtract) / scale. Raises ConfigError for buffers that are missing
    or have another shape."""
    normalizers: list[tuple[str, str, Any]] = [  # prefix there, prefix here
        (f"{OLD_NORMALIZERS}{key}.", f"observation_normalizers.normalizers.{i}.", normalizer)
        for i, (key, normalizer) in enumerate(_observation_normalizers(model))
    ]
    normalizers.append(("returns_normalizer.", "returns_normalizer.", model.returns_normalizer))
    state: dict[str, Tensor] = {}
    used: set[str] = set()
    for prefix, own, normalizer in normalizers:
        if not isinstance(normalizer, RunningNormalizer):
            continue
        names = [prefix + name for name in OLD_BUFFERS]
        missing = [name for name in names if name not in old]
        if missing:
            raise ConfigError(f"normaliser {missing[0]} is not in the old checkpoint")
        mean, variance, count = (old[name].double() for name in names)
        if mean.numel() != normalizer.mean.numel():
            raise ConfigError(
                f"normaliser {names[0]} has shape {list(mean.shape)}, and {list(normalizer.shape)} would "
                "fit: the observations of the env differ from those of its training"
            )
        if prefix == f"{OLD_NORMALIZERS}{OLD_KEY}.":
            mean = mean * scale + subtract
            variance = (variance + OLD_EPS) * scale**2 - OLD_EPS
        if not (variance + OLD_EPS > 0).all():
            raise ConfigError(f"normaliser {names[1]} has negative numbers")
        state[f"{own}mean"] = mean.reshape(normalizer.shape)
        rounded = (variance + OLD_EPS - normalizer.eps).clamp(min=0)  # an old one may be -1e-9
        state[f"{own}variance"] = rounded.reshape(normalizer.shape)
        state[f"{own}count"] = count.reshape(())
        used.update(names)
    return state, used


def _rescale_first_layers(
    state: dict[str, Tensor], model: TowerActorCritic, subtract: float, scale: float
) -> bool:
    """Changes first linear layers in `state` so that they compute the old outputs from the observations of
    this version. The old network got a vector `obs` as (x - subtract) / scale; this version's network gets x,
    unless it has running statistics. Returns whether a layer was changed. Raises ConfigError for an image:
    its convolutions pad with zeros, so no change of weights has the same effect."""
    is_rescaled = False
    for key, normalizer in _observation_normalizers(model):
        inner = (subtract, scale) if key == OLD_KEY else (0.0, 1.0)
        if not isinstance(normalizer, FixedNormalizer) or inner == (normalizer.subtract, normalizer.scale):
            continue
        if len(normalizer.shape) > 1:
            raise ConfigError(
                f"--obs_scale, --obs_subtract_mean: they apply to image {key} here, and did not in the old "
                "network; it cannot be converted"
            )
        for i, tower in enumerate(model.each_tower()):
            groups = cast(MultiInputEncoder, tower.encoder).groups
            first = f"towers.{i}.encoder.encoders.{groups.index((key,))}.layers.0."
            weight = state[f"{first}weight"].double() / scale
            bias = state[f"{first}bias"].double() - subtract * weight.sum(dim=1)
            state[f"{first}weight"] = weight.float()
            state[f"{first}bias"] = bias.float()
        is_rescaled = True
    return is_rescaled


def _observation_normalizers(model: TowerActorCritic) -> Iterator[tuple[str, torch.nn.Module]]:
    return zip(model.observation_normalizers.keys, model.observation_normalizers.normalizers)


def _moments(
    optimizer: Mapping[str, Any],
    old: Mapping[str, Tensor],
    old_names: Mapping[str, str],
    model: TowerActorCritic,
) -> dict[int, dict[str, Tensor]]:
    """Converts the state of the old optimizer. Returns index of a parameter in `model` -> state of Adam or
    LAMB; empty if the old state lacks a parameter or has another form.
    optimizer: state_dict of the old optimizer, whose parameters have the order of their names in `old`.
    old_names: name of a parameter of `model` -> its name in `old`."""
    parameters = [name for name in old if name.rpartition(".")[2] not in OLD_BUFFERS]
    index_of_old = {name: i for i, name in enumerate(parameters)}
    moments = {}
    for index, (name, parameter) in enumerate(model.named_parameters()):
        saved = optimizer.get("state", {}).get(index_of_old[old_names[name]])
        is_usable = saved is not None and {"step", "exp_avg", "exp_avg_sq"} <= set(saved)
        if not is_usable or saved["exp_avg"].shape != parameter.shape:
            return {}
        moments[index] = {
            "step": torch.tensor(float(saved["step"])),
            "exp_avg": saved["exp_avg"].clone(),
            "exp_avg_sq": saved["exp_avg_sq"].clone(),
        }
    return moments
