"""Generated envs that reuse, clear and overwrite what they hand out: every way of playing reports what is in
their ledgers. `pytest tests/envs/test_ledger.py --hypothesis-profile=many` tries 2,000 of them."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import EnvConfig, EnvContractError
from sample_factory.envs.wrappers.frame_stack import ActionRepeat, FrameSkip
from sample_factory.envs.wrappers.potential_shaping import ParallelPotentialShaping, PotentialShaping
from sample_factory.evaluation.watched_env import Watch
from sample_factory.imitation.recorded_env import RecordedEnv
from sample_factory.sampling.rollout.env_vector import EnvVector
from sample_factory.version_2.play_loop import BatchedVecEnv
from tests.counting import RAW_REWARDS, make_config, make_shared
from tests.envs import ledger_envs
from tests.envs.ledger_envs import (
    NUM_ACTIONS,
    EpisodeEntry,
    Habits,
    Parallel,
    Resets,
    Script,
    Single,
    Step,
    Vector,
    habits,
    scripts,
    several,
)
from tests.envs.simulators import simulators
from tests.sampling.matchmaking.matchmakers import random_matchmaker
from tests.sampling.rollout.test_env_vector import Named

NUM_STEPS = 32
envs = st.one_of(ledger_envs.envs, simulators)
few = settings(max_examples=settings.default.max_examples // 4)  # of a test of less variety
CONFIG = make_config(worker_num_splits=1, num_envs_per_worker=1, rollout=NUM_STEPS, batch_size=NUM_STEPS)
ACTIONS = np.random.default_rng(0).integers(NUM_ACTIONS, size=(NUM_STEPS, 3)).astype(np.float32)


def lives_of(env):
    return env.unwrapped.lives if isinstance(env, (gym.Env, gym.vector.VectorEnv, Parallel)) else env.lives


def entry(result) -> EpisodeEntry:
    """Returns an EpisodeReport or an EpisodeResult as an entry of a ledger."""
    return EpisodeEntry(result.reward, result.length, result.true_objective, dict(result.extra_stats))


def play_rollout(
    env, num_random_steps=0, around=lambda adapted: adapted, on_step=lambda reports: None, frameskip=1
):
    """Plays a rollout as a rollout worker does. Returns the entries and the steps of each agent.

    around: called with the adapted env; returns the env to step. on_step: called with the reports of a step.
    """
    buffers, _ = make_shared(CONFIG, env)
    buffers.topology = dataclasses.replace(buffers.topology, frameskip=frameskip)
    num_agents = buffers.topology.agents_per_split
    matchmaker = random_matchmaker(1, [0] * num_agents, True, np.random.default_rng(0))
    named = Named(env, 0)
    named.adapted = around(named.adapted)
    vector = EnvVector([named], [matchmaker], buffers, 0, 0, RAW_REWARDS)
    vector.reset([None], [num_random_steps], lambda rows: ACTIONS[0][: len(rows.buffers), None])
    rows = vector.memory.buffer_indices
    buffers.outputs[rows, :, 0] = ACTIONS.T[:num_agents]
    entries = [[] for _ in rows]
    for _ in range(NUM_STEPS):
        vector.step()
        reports = vector.log.take_reports()
        on_step(reports)
        for report in reports:
            entries[report.agent_id].append(entry(report))
    steps = [
        [
            Step(*values)
            for values, policy in zip(
                zip(
                    buffers.outputs[row, :, 0].astype(int).tolist(),
                    buffers.rewards[row].tolist(),
                    buffers.terminated[row].tolist(),
                    buffers.truncated[row].tolist(),
                ),
                buffers.policy_ids[row],
            )
            if policy >= 0
        ]
        for row in rows
    ]
    return entries, steps


def whole_episodes(steps):
    """Returns the steps of the episodes that have ended."""
    last = max((i for i, step in enumerate(steps) if step.terminated or step.is_cut), default=-1)
    return steps[: last + 1]


@given(envs)
def test_rollouts_hold_and_report_what_happened_in_the_env(make_env):
    env = make_env()
    entries, steps = play_rollout(env)
    for life, own_entries, own_steps in zip(lives_of(env), entries, steps, strict=True):
        assert own_entries == life.episodes
        assert own_steps == life.steps


@few
@given(envs, st.integers(1, 12))
def test_an_episode_that_begins_with_random_steps_is_reported_as_a_whole(make_env, num_random_steps):
    env = make_env()
    entries, _ = play_rollout(env, num_random_steps)
    for life, own in zip(lives_of(env), entries, strict=True):
        assert own == life.episodes[len(life.episodes) - len(own) :]
        assert sum(step.length for step in life.episodes[: len(life.episodes) - len(own)]) <= num_random_steps


@few
@given(envs)
def test_the_reward_on_the_screen_is_what_happened_in_the_env(make_env):
    watches = []

    def watch(adapted):
        watches.append(Watch(adapted))
        return watches[0](adapted, EnvConfig(0, 0, 0))

    def compare(reports):
        for report in reports:
            assert watches[0].returns[report.agent_id] == report.reward

    entries, _ = play_rollout(make_env(), around=watch, on_step=compare)
    assert watches[0].num_steps == NUM_STEPS and len(entries) == len(watches[0].returns)


@few
@given(envs)
def test_recorded_episodes_are_what_happened_in_the_env(make_env):
    env = make_env()
    recorded = [[] for _ in lives_of(env)]

    def record(adapted):
        return RecordedEnv(adapted, lambda agent, episode: recorded[agent].append(episode))

    play_rollout(env, around=record)
    for life, own in zip(lives_of(env), recorded, strict=True):
        assert len(own) == len(life.episodes)
        columns = [(e.actions[:, 0].tolist(), e.rewards, e.terminated, e.truncated) for e in own]
        steps = [Step(*values) for column in columns for values in zip(*column)]
        assert steps == whole_episodes(life.steps)
        assert [len(e.actions) for e in own] == [e.length for e in life.episodes]


@few
@given(envs)
def test_a_loop_of_version_2_gets_what_happened_in_the_env(make_env):
    env = make_env()
    batched = BatchedVecEnv(adapt(env))
    batched.reset()
    seen = []  # by step
    for actions in ACTIONS[:, : batched.num_agents]:
        observations, *results, infos = batched.step(actions)
        seen.append((observations, results, infos))  # looked at after all later steps
    ends = [
        [agent for agent in range(batched.num_agents) if bool(results[1][agent] | results[2][agent])]
        for _, results, _ in seen
    ]
    for agent, life in enumerate(lives_of(env)):
        infos = [infos[agent] for (_, _, infos), ended in zip(seen, ends) if agent in ended]
        objective = life.script.objective
        if objective is not None:
            assert [info[objective] for info in infos] == [episode.objective for episode in life.episodes]
        total = sum(float(results[0][agent]) for _, results, _ in seen)
        assert total == sum(step.reward for step in life.steps)


@few
@given(scripts, habits, st.integers(1, 4))
def test_repeated_actions_add_up_what_happened_in_the_env(script, habits, times):
    repeated = Single(script, habits)
    entries, _ = play_rollout(repeated, around=lambda adapted: ActionRepeat(adapted, times), frameskip=times)
    skipping = FrameSkip(Single(script, habits), times)
    assert play_rollout(skipping, frameskip=times)[0] == entries
    for env in (repeated, skipping.unwrapped):
        (life,) = env.lives
        assert entries == [life.episodes], "an episode has the frames that were played"


@few
@given(several, habits, st.booleans())
def test_shaped_rewards_leave_the_objective_of_the_env(scripts, habits, is_parallel):
    potential = (lambda observation, info: observation[0], 1.0)
    if is_parallel:
        inner = Parallel(scripts, habits)
        env = ParallelPotentialShaping(inner, *potential)
    else:
        inner = Single(scripts[0], habits)
        env = PotentialShaping(inner, *potential)
    for life, own in zip(inner.lives, play_rollout(env)[0], strict=True):
        assert [e.objective for e in own] == [e.objective for e in life.episodes]
        # With gamma 1, the shaping adds up to the potential of the last state, which counts as 0 if terminal.
        ends = [step for step in life.steps if step.terminated or step.is_cut]
        added = [episode.length if end.is_cut else 0 for episode, end in zip(life.episodes, ends)]
        assert [e.reward for e in own] == [e.reward + extra for e, extra in zip(life.episodes, added)]


@pytest.mark.parametrize("final", ["", "final_info"])
def test_a_vector_env_that_does_not_declare_when_it_resets_is_refused(final):
    script = Script((2,), ("terminated",), (1,), None, False)
    plain = Habits("float", "bool", False, frozenset(), False)
    env = Vector([script], plain, Resets(AutoresetMode.SAME_STEP, declared=None, final=final))
    with pytest.raises(EnvContractError, match="Vector does not say when it resets.*AutoresetMode.SAME_STEP"):
        adapt(env)
