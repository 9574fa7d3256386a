"""A long run in which workers and engines are killed: `pytest tests/system/test_soak.py --soak=600 -s`."""

import random
import time

import psutil
import pytest

from tests.system.running import (
    assert_all_gone,
    child,
    descendants,
    engines,
    kill,
    scalars,
    start,
    wait_for_frames,
)

FLAGS = ["--env=doom_basic", "--experiment=a", "--num_workers=2", "--num_envs_per_worker=8", "--device=cpu"]
FLAGS += ["--inline_samplers=0"]
FLAGS += ["--rollout=32", "--batch_size=512", "--seed=1"]
PAUSE_SECONDS = (20.0, 40.0)
LEARNED = 0.6  # doom_basic reaches about 0.8
SETTLED_SECONDS = 90.0  # by then every component has reached its size
MEASURED = ("main", "learner_0", "policy_worker_0_0")


def sizes(run) -> dict[str, tuple[float, int]]:
    """Returns name -> (resident MB, open files) of the processes that live as long as the run."""
    family = descendants(run)
    found = {name: child(family, name) for name in MEASURED[1:]} | {"main": psutil.Process(run.pid)}
    return {name: (process.memory_info().rss / 2**20, process.num_fds()) for name, process in found.items()}


@pytest.mark.timeout(0)
def test_training_learns_and_nothing_accumulates_while_workers_and_engines_are_killed(tmp_path, request):
    seconds = request.config.getoption("--soak")
    if not seconds:
        pytest.skip("takes minutes; ask for it by --soak=SECONDS")
    dice = random.Random(1)
    run = start("train", tmp_path, *FLAGS, f"--train_for_seconds={seconds}")
    wait_for_frames(run, 0)
    started = time.monotonic()
    next_kill = 0.0
    kills = {"worker": 0, "engine": 0}
    early = late = None
    family = set()
    for line in run.stdout:  # a status comes every five seconds
        print(line, end="")
        passed = time.monotonic() - started
        if passed > seconds - 15:
            continue
        family.update(descendants(run))
        if passed > SETTLED_SECONDS:
            late = sizes(run)
            early = early or late
        if passed > next_kill:
            worker = child(descendants(run), f"rollout_worker_{dice.randrange(2)}")
            targets = engines(worker)
            is_engine = bool(targets) and dice.random() < 0.5
            kill(dice.choice(targets) if is_engine else worker)
            kills["engine" if is_engine else "worker"] += 1
            next_kill = passed + dice.uniform(*PAUSE_SECONDS)
    assert run.wait(timeout=30) == 0
    found = scalars(tmp_path / "a")
    rewards = [value for _, value in found["0_aux/avg_reward"]]
    print(f"kills {kills}; reward {rewards[0]:.2f} -> {rewards[-1]:.2f}; {early} -> {late}")
    print({kind: found[f"health/{kind}"][-1][1] for kind in ("worker_restarts", "env_rebuilds")})
    assert found["health/worker_restarts"][-1][1] == kills["worker"]
    assert found["health/env_rebuilds"][-1][1] == kills["engine"]
    assert rewards[-1] > max(rewards[0], LEARNED)
    for name in MEASURED:
        assert late[name][0] < 1.1 * early[name][0] + 20, f"the memory of {name} has grown"
        assert late[name][1] <= early[name][1] + 5, f"open files of {name} have piled up"
    assert_all_gone(list(family))
