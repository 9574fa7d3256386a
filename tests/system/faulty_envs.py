"""A user's script: envs that go wrong in the way that their name says, e.g. `--env=faulty_hangs`.

Env 1 of worker 1 goes wrong after some steps of each life, once the policy has learned something. With a name
like `faulty_raises_then_exits` it has each fault once, one in each of its first lives: the file FAULT_FILE
has a line for each fault so far.

In all its lives, its episodes have to begin with the value that an observer has sent before the start.

Three names stand for other faults. In `faulty_never_made`, making env 1 of worker 1 takes forever. In
`faulty_lingers`, no `close` returns, and each env leaves a thread, and a process whose id is in FAULT_FILE.
In `faulty_dies_at_the_end`, `close` of env 1 of worker 1 makes its process fail.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium as gym
import numpy as np

from sample_factory import Observer, register_env, register_observer
from sample_factory.envs.abilities import TrainingInfo
from sample_factory.train import main

# Number of the step in which an env goes wrong: later than the steps of its trial, and than the random steps
# (at most 8 rollouts of 16) with which a worker begins.
STEPS = 150
STEP_SECONDS = 0.005  # a run that only goes on leaves the cores to other tests
LEVEL = 7
LEAKED = []


class SendsLevel(Observer):
    def on_init(self, run):
        run.send_to_envs({"level": LEVEL})


class Faulty(gym.Env, TrainingInfo):
    """Two numbers; an episode has 20 steps."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    has_raised = False  # in reset, in this process

    def __init__(self, kind, is_culprit):
        self.faults = kind.split("_then_")
        self.is_culprit = is_culprit
        self.num_steps = 0
        if kind == "never_made" and is_culprit:
            self.wait_forever()
        if kind == "lingers":
            threading.Thread(target=self.wait_forever).start()
            left = subprocess.Popen(["sleep", "600"], start_new_session=True)
            with open(os.environ["FAULT_FILE"], "a") as file:
                file.write(f"{left.pid}\n")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.is_culprit and self.training_info.get("level") != LEVEL:
            raise AssertionError(f"an episode begins with the values {self.training_info}")
        if self.faults == ["never_starts"]:
            raise LookupError("level 1 is missing")
        raises = self._goes_wrong_now() or (self.is_culprit and Faulty.has_raised)
        if self.faults == ["raises_in_reset"] and raises:
            Faulty.has_raised = True
            raise LookupError("level 7 is missing")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(STEP_SECONDS)
        self.num_steps += 1
        observation = np.zeros(2, np.float32)
        if self._goes_wrong_now():
            observation = self._go_wrong(self._next_fault(), observation)
        return observation, 1.0, self.num_steps % 20 == 0, False, {}

    def _goes_wrong_now(self):
        # A run that has learned nothing leaves no folder.
        has_learned = self.training_info.get("approx_total_training_steps", 0) > 0
        return self.is_culprit and self.num_steps >= STEPS and has_learned

    def _next_fault(self):
        if len(self.faults) == 1:
            return self.faults[0]
        file = Path(os.environ["FAULT_FILE"])
        past = file.read_text().splitlines() if file.exists() else []
        fault = self.faults[len(past)] if len(past) < len(self.faults) else None
        if fault:
            file.write_text("\n".join([*past, fault]))
        return fault

    def _go_wrong(self, fault, observation):
        match fault:
            case "raises":
                raise LookupError("level 7 is missing")
            case "hangs":
                self.wait_forever()
            case "exits":
                os._exit(3)
            case "wrong_shape":
                return np.zeros(3, np.float32)
            case "leaks":
                LEAKED.append(np.ones(2**20))  # 8 MB
        return observation

    def close(self):
        if self.faults == ["lingers"]:
            self.wait_forever()
        if self.faults == ["dies_at_the_end"] and self.is_culprit:
            thread = threading.Thread(target=self._go_wrong, args=("raises", None))
            thread.start()  # an exception in a thread is a failure of the process
            thread.join()

    def wait_forever(self):
        time.sleep(100_000)


def make_env(full_env_name, cfg, env_config, render_mode=None):
    is_culprit = env_config is not None and (env_config.worker_index, env_config.vector_index) == (1, 1)
    return Faulty(full_env_name.removeprefix("faulty_"), is_culprit)


register_env("faulty_", make_env)
register_observer("sends_level", SendsLevel)

if __name__ == "__main__":
    sys.exit(main())
