"""The newest version that the learner has left behind, against a loop over all samples."""

import pytest
import torch

from sample_factory.exchange.channels import NO_VERSION
from sample_factory.learning.learner import newest_diverged

T, B, OLDEST, NEWEST = 4, 12, 10, 14


def make_samples(seed):
    generator = torch.Generator().manual_seed(seed)
    versions = torch.randint(OLDEST, NEWEST, (T, B), generator=generator, dtype=torch.int32)
    # The older a version, the further its policy is from the learner's.
    divergences = torch.rand(T, B, generator=generator) * (NEWEST - versions)
    own = torch.rand(T, B, generator=generator) < 0.7
    return divergences, versions, own


def slow(divergences, versions, own, threshold, min_samples):
    found = NO_VERSION
    for version in range(OLDEST, NEWEST):
        values = [
            float(divergences[t, b])
            for t in range(T)
            for b in range(B)
            if own[t, b] and versions[t, b] == version
        ]
        if len(values) >= min_samples and sum(values) / len(values) > threshold:
            found = version
    return found


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0, 1.5, 10.0])
@pytest.mark.parametrize("min_samples", [1, 9, 100])
def test_it_is_the_newest_version_with_enough_samples_whose_mean_divergence_is_above_the_threshold(
    threshold, min_samples
):
    for seed in range(5):
        samples = make_samples(seed)
        assert newest_diverged(*samples, threshold, min_samples) == slow(*samples, threshold, min_samples)


def test_without_samples_no_version_has_diverged():
    divergences, versions, own = make_samples(1)
    assert newest_diverged(divergences, versions, torch.zeros_like(own), 0.0, 1) == NO_VERSION
