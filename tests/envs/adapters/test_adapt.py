"""The choice of an adapter."""

import subprocess
import sys


def test_a_rollout_worker_of_another_env_does_not_load_pettingzoo():
    program = (
        "import sys, gymnasium\n"
        "import sample_factory.sampling.rollout.rollout_worker\n"
        "from sample_factory.envs.adapters.adapt import adapt\n"
        "from sample_factory.envs.env_registry import resolve_family\n"
        "resolve_family('gym_CartPole-v1'), adapt(gymnasium.make('CartPole-v1'))\n"
        "print([name for name in sys.modules if name.startswith('pettingzoo')])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
