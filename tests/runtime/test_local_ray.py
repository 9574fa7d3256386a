"""Which Ray cluster is used, and whether it can be reached; without Ray."""

import socket

import pytest

from sample_factory.runtime import local_ray
from sample_factory.runtime.failures import CommandFailed
from sample_factory.runtime.local_ray import Cluster, find_cluster


def test_the_flag_replaces_the_variable_and_local_means_none(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert find_cluster(None) is None
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert find_cluster(None) == Cluster("10.0.0.1:6379", "RAY_ADDRESS=10.0.0.1:6379")
    assert find_cluster("auto") == Cluster("auto", "--ray_address=auto")
    assert find_cluster("local") is None
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert find_cluster(None) is None


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_a_cluster_where_nothing_listens_is_an_error_that_names_the_source(prefix, monkeypatch):
    monkeypatch.setattr(local_ray, "CONNECT_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{prefix}127.0.0.1:{server.getsockname()[1]}"
        Cluster(address, "").check()
    with pytest.raises(CommandFailed, match=f"--ray_address={address}: no Ray cluster can be reached"):
        Cluster(address, f"--ray_address={address}").check()


@pytest.mark.parametrize("address", ["auto", "http://127.0.0.1:1", "nonsense"])
def test_what_only_ray_understands_is_left_to_ray(address):
    Cluster(address, "").check()
