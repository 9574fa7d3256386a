import pytest

from sample_factory.benchmarking.flag_sweep import DoesNotRun, fastest, sweep

START = {
    "num_envs_per_worker": 8,
    "inline_samplers": 0,
    "worker_num_splits": 2,
    "policy_workers_per_policy": 1,
    "batch_size": 1024,
    "num_workers": 4,
}


def swept(speed, start=START, rollout=32, cores=4):
    reported = []
    trials = sweep(start, rollout, cores, lambda values: float(speed(values)), reported.append)
    assert reported == trials
    return trials


def tried(trials, flag):
    return [trial.values[flag] for trial in trials if trial.changed == flag]


def test_a_sweep_climbs_each_flag_for_as_long_as_it_gets_faster():
    trials = swept(lambda values: min(values["num_envs_per_worker"], 32) * values["worker_num_splits"])
    assert tried(trials, "num_envs_per_worker") == [16, 32, 64]
    assert tried(trials, "worker_num_splits") == [4]  # the most; none downwards
    assert {name: fastest(trials).values[name] for name in ("num_envs_per_worker", "worker_num_splits")} == {
        "num_envs_per_worker": 32,
        "worker_num_splits": 4,
    }


def test_a_sweep_tries_smaller_values_where_larger_ones_are_slower():
    trials = swept(lambda values: 1000 / values["batch_size"])
    assert tried(trials, "batch_size") == [2048, 512, 256, 128]
    assert fastest(trials).values == {**START, "batch_size": 128}


def test_a_gain_that_may_be_chance_is_not_kept():
    trials = swept(lambda values: 1000 + 29 * (values != START))
    assert fastest(trials).values == START
    assert [trial.is_kept for trial in trials] == [True] + [False] * (len(trials) - 1)


def test_a_sweep_tries_only_valid_values_that_suit_the_machine():
    trials = swept(lambda values: 100, {**START, "num_envs_per_worker": 6, "batch_size": 96}, cores=1)
    assert tried(trials, "num_envs_per_worker") == [12]  # 3 envs do not make 2 equal splits
    assert tried(trials, "worker_num_splits") == [1]
    assert tried(trials, "policy_workers_per_policy") == []
    assert tried(trials, "batch_size") == [192]  # 48 samples are no whole trajectories of 32
    assert tried(trials, "num_workers") == [2]  # 8 are too many for one core


def test_a_sweep_tries_an_inline_sampler_per_core_and_none():
    trials = swept(lambda values: 1000 + values["inline_samplers"], {**START, "num_workers": 3})
    assert tried(trials, "inline_samplers") == [3]
    trials = swept(lambda values: 1000 + 100 * values["inline_samplers"])
    assert tried(trials, "inline_samplers") == [4]
    assert tried(trials, "policy_workers_per_policy") == [], "an inline sampler has one"
    assert tried(trials, "num_workers") == [8], "2 workers cannot be shared out among 4 samplers"
    trials = swept(lambda values: 1000 - 100 * values["inline_samplers"], {**START, "inline_samplers": 4})
    assert tried(trials, "inline_samplers") == [0]


def test_a_trial_that_does_not_run_is_recorded_and_skipped():
    def speed(values):
        if values["batch_size"] != 1024:
            raise DoesNotRun("the run failed", "out of memory")
        return values["num_workers"]

    trials = swept(speed)
    failed = [trial for trial in trials if trial.fps is None]
    assert tried(failed, "batch_size") == [2048, 512] and {trial.note for trial in failed} == {
        "out of memory"
    }
    assert fastest(trials).values["num_workers"] == 8


def test_a_sweep_whose_start_does_not_run_fails():
    def speed(values):
        raise DoesNotRun("the run failed", "out of memory")

    with pytest.raises(DoesNotRun):
        swept(speed)
