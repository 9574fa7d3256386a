import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.models.normalizers import CHUNK_BYTES, ObservationNormalizers, RunningNormalizer
from sample_factory.spaces.observations import Indices, is_image

S = gym.spaces
SPACE = S.Dict(
    action_mask=S.Box(0, 1, (4,), np.uint8),
    measurements=S.Box(-np.inf, np.inf, (3,), np.float32),
    obs=S.Box(0, 255, (3, 8, 6), np.uint8),
)


def with_first_sample(rows):
    """Returns mean and variance of the rows and of one sample of N(0, 1), the start of the statistics."""
    rows = rows.double()
    count = len(rows) + 1
    mean = rows.sum(0) / count
    variance = ((rows - mean).square().sum(0) + 1 + mean.square()) / count
    return mean, variance


@pytest.mark.parametrize("num_parts", [1, 3, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_statistics_are_those_of_everything_seen(num_parts, dtype):
    torch.manual_seed(0)
    rows = (torch.randn(50, 4, 2) * 20 + 100).to(dtype)
    normalizer = RunningNormalizer((4, 2))
    for part in rows.split(50 // num_parts):
        normalizer.update(part)
    mean, variance = with_first_sample(rows)
    torch.testing.assert_close(normalizer.mean, mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(normalizer.variance, variance, rtol=1e-5, atol=1e-5)
    assert normalizer.count == 51


def test_masked_rows_are_missing_rows():
    rows = torch.randn(6, 5, 3)
    valid = torch.rand(6, 5) < 0.5
    masked = RunningNormalizer((3,))
    alone = RunningNormalizer((3,))
    rows[~valid] = float("nan")
    masked.update(rows, valid)
    alone.update(rows[valid])
    torch.testing.assert_close(masked.state_dict(), alone.state_dict())


def test_an_update_with_no_valid_row_changes_nothing():
    normalizer = RunningNormalizer((3,))
    normalizer.update(torch.randn(4, 3), torch.zeros(4, dtype=torch.bool))
    torch.testing.assert_close(normalizer.state_dict(), RunningNormalizer((3,)).state_dict())


def test_a_large_offset_does_not_cost_precision():
    rows = torch.randn(5000, 1, generator=torch.Generator().manual_seed(0)) + 1000
    normalizer = RunningNormalizer((1,))
    for part in rows.split(500):
        normalizer.update(part)
    _mean, variance = with_first_sample(rows)
    torch.testing.assert_close(normalizer.variance, variance, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.int32])
def test_normalize_is_the_formula_over_many_chunks(dtype):
    num_rows = 3 * CHUNK_BYTES // (4 * 24) + 1
    rows = torch.randint(0, 200, (num_rows, 4, 6)).to(dtype)
    normalizer = RunningNormalizer((4, 6))
    normalizer.update(rows[:5])
    expected = (rows.double() - normalizer.mean) / (normalizer.variance + 1e-5).sqrt()
    expected = expected.clamp(-5, 5).float()
    torch.testing.assert_close(normalizer.normalize(rows), expected, rtol=1e-4, atol=1e-5)


def test_normalize_keeps_leading_dimensions_and_statistics():
    normalizer = RunningNormalizer((3,))
    before = {key: value.clone() for key, value in normalizer.state_dict().items()}
    assert normalizer.normalize(torch.randn(4, 5, 3)).shape == (4, 5, 3)
    assert normalizer.normalize(torch.randn(3)).shape == (3,)
    torch.testing.assert_close(normalizer.state_dict(), before)


def test_outliers_are_clipped():
    assert RunningNormalizer(()).normalize(torch.tensor([1e9, -1e9])).tolist() == [5.0, -5.0]


def test_denormalize_is_the_inverse():
    torch.manual_seed(0)
    normalizer = RunningNormalizer(())
    returns = torch.randn(100, 7) * 30 + 400
    normalizer.update(returns)
    there_and_back = normalizer.denormalize(normalizer.normalize(returns))
    torch.testing.assert_close(there_and_back, returns, rtol=1e-4, atol=1e-3)


def observations():
    torch.manual_seed(0)
    return {
        "action_mask": torch.ones(20, 4, dtype=torch.uint8),
        "measurements": torch.randn(20, 3) * 9 + 4,
        "obs": torch.randint(0, 255, (20, 3, 8, 6), dtype=torch.uint8),
    }


def one_step(rows):
    """Returns [B, ...] as the observations of one time step of B agents, [1, B, ...]."""
    return {key: x.unsqueeze(0) for key, x in rows.items()}


def test_normalize_follows_updates_loads_and_conversions():
    x = torch.tensor([[1.0, 5.0], [3.0, 9.0]])
    normalizer = RunningNormalizer((2,))
    other = RunningNormalizer((2,))
    start = normalizer.normalize(x)
    normalizer.update(x)
    updated = normalizer.normalize(x)
    assert not torch.equal(updated, start)
    assert torch.equal(other.normalize(x), start)
    other.load_state_dict(normalizer.state_dict())
    assert torch.equal(other.normalize(x), updated)
    other.mean.data = other.mean + 1
    torch.testing.assert_close(other.double().normalize(x), normalizer.normalize(x - 1))


def test_every_fourth_step_of_images_and_every_step_of_vectors_is_used():
    rows = {key: x.unflatten(0, (10, 2)) for key, x in observations().items()}
    valid = torch.rand(10, 2) < 0.7
    normalizers = ObservationNormalizers(ModelFlags(), SPACE)
    normalizers.update(rows, valid)
    measurements, images = normalizers.normalizers
    seen = rows["measurements"][valid].double()
    torch.testing.assert_close(measurements.mean, seen.sum(0) / (len(seen) + 1), atol=1e-5, rtol=1e-5)
    seen = rows["obs"][::4][valid[::4]].double()
    torch.testing.assert_close(images.mean, seen.sum(0) / (len(seen) + 1), atol=1e-3, rtol=1e-5)


def test_every_observation_but_the_mask_is_normalised():
    normalizers = ObservationNormalizers(ModelFlags(), SPACE)
    for _ in range(200):
        normalizers.update(one_step(observations()))
    normalized = normalizers(observations())
    assert set(normalized) == {"measurements", "obs"}
    for x in normalized.values():
        assert x.dtype == torch.float32
        assert x.mean(0).abs().max() < 0.1 and (x.std(0) - 1).abs().max() < 0.1


def test_indices_of_discrete_observations_are_not_normalised():
    normalizers = ObservationNormalizers(ModelFlags(), S.Dict(obs=Indices((100_000,))))
    indices = torch.tensor([[99_999], [0]], dtype=torch.int32)
    normalizers.update({"obs": indices.unsqueeze(0)})
    normalized = normalizers({"obs": indices})["obs"]
    assert normalized.dtype == torch.int64 and torch.equal(normalized, indices.long())
    assert not normalizers.state_dict()


def test_only_the_chosen_keys_are_normalised():
    flags = ModelFlags(normalize_input_keys=("measurements",), obs_subtract_mean=10.0, obs_scale=128.0)
    normalizers = ObservationNormalizers(flags, SPACE)
    normalizers.update(observations())
    raw = observations()
    normalized = normalizers(observations())
    torch.testing.assert_close(normalized["obs"], (raw["obs"].float() - 10) / 128)
    assert not torch.equal(normalized["measurements"], raw["measurements"])


@pytest.mark.parametrize("shape", [(6,), (6, 8), (3, 6, 8), (2, 3, 6, 8), (1, 2, 3, 6, 8)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("normalize_input", [True, False])
def test_whatever_counts_as_an_image_is_scaled_and_nothing_else(shape, dtype, normalize_input):
    box = S.Box(0, 255, shape, dtype)
    flags = ModelFlags(normalize_input=normalize_input, obs_subtract_mean=55.0, obs_scale=100.0)
    normalizers = ObservationNormalizers(flags, S.Dict(obs=box))
    found = normalizers({"obs": torch.full((1, *shape), 255).to(torch.from_numpy(box.low).dtype)})["obs"]
    plain = {True: 1.0 if dtype == np.uint8 else 5.0, False: 255.0}[normalize_input]
    torch.testing.assert_close(found.float(), torch.full((1, *shape), 2.0 if is_image(box) else plain))


def test_scaling_before_running_normalisation_changes_nothing():
    plain = ObservationNormalizers(ModelFlags(), SPACE)
    scaled = ObservationNormalizers(ModelFlags(obs_subtract_mean=10.0, obs_scale=255.0), SPACE)
    for _ in range(200):
        plain.update(one_step(observations()))
        scaled.update(one_step(observations()))
    images = [normalizers(observations())["obs"] for normalizers in (plain, scaled)]
    torch.testing.assert_close(*images, rtol=1e-3, atol=1e-3)


def test_keys_may_be_no_identifiers():
    space = S.Dict({"a.b": S.Box(-1, 1, (2,)), "keys": S.Box(-1, 1, (2,)), "type": S.Box(-1, 1, (2,))})
    normalized = ObservationNormalizers(ModelFlags(), space)({key: torch.zeros(3, 2) for key in space})
    assert set(normalized) == {"a.b", "keys", "type"}


def test_images_come_in_the_type_of_autocast_and_vectors_do_not():
    normalizers = ObservationNormalizers(ModelFlags(), SPACE)
    with torch.autocast("cpu", torch.bfloat16):
        normalized = normalizers(observations())
    assert normalized["obs"].dtype == torch.bfloat16
    assert normalized["measurements"].dtype == torch.float32


def test_mean_and_inverse_are_cached_on_the_cpu_only():
    normalizer = RunningNormalizer((3,)).to("meta")
    first = normalizer._mean_and_inverse()
    second = normalizer._mean_and_inverse()
    assert first[0] is not second[0]
    normalizer = RunningNormalizer((3,))
    assert normalizer._mean_and_inverse()[0] is normalizer._mean_and_inverse()[0]
