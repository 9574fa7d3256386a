"""The recipes of a run's processes."""

import types

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import env_info
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.experiment.wiring import (
    Parts,
    learner_recipe,
    policy_worker_recipe,
    rollout_worker_recipe,
)
from tests.counting import CountingEnv, make_config, make_shared


def test_the_learner_goes_before_policy_workers_and_these_before_rollout_workers():
    config, env = make_config(default_niceness=2), CountingEnv(0, 1)
    info = env_info(adapt(env), types.SimpleNamespace(env_frameskip=None))
    parts = Parts(
        config, EnvFamily("counting", CountingEnv, None, {}), info, *make_shared(config, env), seed=1
    )
    recipes = learner_recipe(parts, 0), policy_worker_recipe(parts, 0, 0), rollout_worker_recipe(parts, 0)
    assert [recipe.options.niceness for recipe in recipes] == [2, 7, 12]
    # Learner and policy worker share one, in which niceness counts; simulators must starve nobody.
    assert [recipe.options.own_session for recipe in recipes] == [False, False, True]
