"""Drivers that need no display."""

import os

import pytest

from sample_factory.envs import env_registry
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.envs.headless import prepare_mujoco
from sample_factory.envs.protocol import EnvConfig


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "MUJOCO_GL"):
        monkeypatch.setenv(name, "before")  # restored after the test
        monkeypatch.delenv(name)


def sdl_driver_of_an_env(monkeypatch):
    monkeypatch.setattr(env_registry, "_FAMILIES", {})
    register_env("toy_", lambda name: os.environ.get("SDL_VIDEODRIVER"))
    return resolve_family("toy_x").make(None, EnvConfig(0, 0, 0))


def test_sdl_draws_without_a_display_in_every_process_that_makes_an_env(monkeypatch):
    assert sdl_driver_of_an_env(monkeypatch) == "dummy"


@pytest.mark.parametrize("name, value", [("DISPLAY", ":0"), ("SDL_VIDEODRIVER", "offscreen")])
def test_sdl_keeps_its_driver_where_there_is_a_display_or_another_driver(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert sdl_driver_of_an_env(monkeypatch) == os.environ.get("SDL_VIDEODRIVER") != "dummy"


def test_mujoco_gets_a_driver_that_is_installed_unless_one_is_selected(monkeypatch):
    monkeypatch.setattr(
        "ctypes.util.find_library", lambda name: f"lib{name}.so" if name == "OSMesa" else None
    )
    prepare_mujoco()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so")
    prepare_mujoco()
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.delenv("MUJOCO_GL")
    prepare_mujoco()
    assert os.environ["MUJOCO_GL"] == "egl"
