"""An env named without the prefix of its family, or by its name elsewhere, suggests the full name."""

import pytest

from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import resolve_family
from sample_factory.families.doom.doom_family import DOOM_SPECS


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("CartPole-v1", "gym_CartPole-v1"),
        ("cartpole", "gym_CartPole-v1"),
        ("gym/CartPole-v1", "gym_CartPole-v1"),
        ("SpaceInvaders-v4", "atari_spaceinvaders"),
        ("Nobodys-v0", "gym_Nobodys-v0"),
        ("pong", "atari_pong"),
        ("atari_pnog", "atari_pong"),
        ("halfcheetah", "mujoco_halfcheetah"),
        ("Ant-v5", "mujoco_ant"),
        ("battle", "doom_battle"),
        ("dom_battle", "doom_battle"),
        ("pistonball", "pettingzoo_butterfly.pistonball_v6"),
        ("pistonball_v6", "pettingzoo_butterfly.pistonball_v6"),
        ("butterfly/pistonball_v6", "pettingzoo_butterfly.pistonball_v6"),
    ],
)
def test_the_full_name_is_suggested(given, meant):
    with pytest.raises(UnknownEnvError) as refused:
        resolve_family(given)
    assert f"did you mean {meant}?" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("given", ["doom", "doom_"])
def test_a_family_alone_lists_its_envs_in_alphabetical_order_on_lines_of_80_columns(given):
    with pytest.raises(UnknownEnvError, match="complete it:\n  doom_basic, .*doom_battle") as caught:
        resolve_family(given)
    _, *lines = str(caught.value).splitlines()
    names = ", ".join(line.strip().rstrip(",") for line in lines).split(", ")
    assert names == sorted(DOOM_SPECS) and max(map(len, lines)) <= 80


def test_a_name_like_no_other_lists_the_families():
    with pytest.raises(UnknownEnvError, match=r"'qqq'\. Names begin with .*doom_, .*gym_, .*pettingzoo_"):
        resolve_family("qqq")
