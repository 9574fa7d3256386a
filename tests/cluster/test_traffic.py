"""When other machines get new weights."""

import pytest

from sample_factory.cluster.traffic import are_weights_due
from sample_factory.config.sampling_flags import ClusterFlags
from sample_factory.exchange.channels import NO_VERSION
from sample_factory.exchange.policy_weights import Stamp

MAX_POLICY_LAG = 100


def is_due(held, newest, diverged=NO_VERSION, **flags):
    return are_weights_due(ClusterFlags(**flags), MAX_POLICY_LAG, held, newest, diverged)


@pytest.mark.parametrize("kind", ["every", "lag", "divergence"])
def test_a_node_without_weights_or_with_those_of_a_former_generation_gets_new_ones(kind):
    assert is_due(None, Stamp(0), weights_sync=kind)
    assert is_due(Stamp(5), Stamp(5, 1), weights_sync=kind)
    assert not is_due(Stamp(5, 1), Stamp(5, 1), weights_sync=kind, diverged=5)


def test_every_new_version_is_sent_by_default():
    assert is_due(Stamp(5), Stamp(6))


def test_by_lag_weights_are_sent_when_they_are_older_than_the_threshold():
    assert not is_due(Stamp(5), Stamp(25), weights_sync="lag")
    assert is_due(Stamp(5), Stamp(26), weights_sync="lag")
    assert is_due(Stamp(5), Stamp(8), weights_sync="lag", weights_sync_threshold=2.0)


def test_by_lag_weights_are_sent_before_samples_become_too_old_whatever_the_threshold():
    assert is_due(Stamp(0), Stamp(MAX_POLICY_LAG // 2 + 1), weights_sync="lag", weights_sync_threshold=500.0)


def test_by_divergence_weights_are_sent_when_the_version_held_or_a_newer_one_has_diverged():
    assert not is_due(Stamp(5), Stamp(9), weights_sync="divergence")
    assert not is_due(Stamp(5), Stamp(9), diverged=4, weights_sync="divergence")
    assert is_due(Stamp(5), Stamp(9), diverged=5, weights_sync="divergence")
    assert is_due(Stamp(5), Stamp(9), diverged=7, weights_sync="divergence")


def test_by_divergence_weights_are_sent_before_samples_become_too_old_to_be_trained_on():
    assert not is_due(Stamp(0), Stamp(MAX_POLICY_LAG // 2), weights_sync="divergence")
    assert is_due(Stamp(0), Stamp(MAX_POLICY_LAG // 2 + 1), weights_sync="divergence")
