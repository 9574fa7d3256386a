from sample_factory.cluster.ray_cluster import describe_use


def test_the_cpus_and_gpus_that_other_jobs_use_are_named():
    machine = {"CPU": 8.0, "GPU": 1.0, "memory": 1e9}
    assert describe_use(machine, machine) == ""
    assert describe_use(machine, {"CPU": 5.0, "GPU": 1.0}) == "3 of 8 CPUs"
    assert describe_use(machine, {"memory": 1e9}) == "8 of 8 CPUs and 1 of 1 GPUs"
