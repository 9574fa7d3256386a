"""The flags of `run` and `search`, which the backends get too."""

from dataclasses import dataclass

from sample_factory.config.flags import ConfigError, flag


@dataclass(frozen=True)
class RunnerFlags:
    """How runs are started.

    Slurm and Ray read the flags that begin with their names, besides those of all backends."""

    run: str | None = flag(
        None, "module that describes the runs, or a file that ends in .py", metavar="MODULE"
    )
    train_dir: str = flag("train_dir", "folder for all runs", metavar="FOLDER")
    runner: str = flag(
        "processes",
        "what runs the experiments: processes, slurm, ray, or module:Class",
        aliases=("backend",),
        metavar="BACKEND",
    )
    pause_between: float = flag(1.0, "seconds between two starts")
    max_parallel: int = flag(
        4, "runs at the same time; a grid on Slurm or a Ray cluster leaves it to their queue", at_least=1
    )
    num_gpus: int = flag(1, "GPUs of this machine to use", at_least=1)
    experiments_per_gpu: int = flag(
        -1, "runs that share a GPU; -1: GPUs are not assigned, each run sees all of them"
    )
    slurm_gpus_per_job: int = flag(1, "Slurm: GPUs of each job")
    slurm_cpus_per_gpu: int = flag(14, "Slurm: CPU cores per GPU; of a job without one")
    slurm_workdir: str | None = flag(
        None, "Slurm: folder for scripts and logs; beside the logs if left out", metavar="FOLDER"
    )
    slurm_partition: str | None = flag(None, "Slurm: partition of the cluster")
    slurm_sbatch_template: str | None = flag(
        None,
        "Slurm: script that prepares the environment; $CMD in it, or its end, is where the experiment runs",
        metavar="FILE",
    )
    slurm_timeout: str = flag(
        "0", "Slurm: time after which a job saves, stops and is queued again, e.g. 8h; 0: never"
    )
    ray_address: str | None = flag(
        None, "Ray: a running cluster, e.g. auto; without it, that in RAY_ADDRESS, or one on this machine"
    )
    ray_cpus_per_job: float = flag(1.0, "Ray: CPUs of each run")

    slurm_print_only = False  # a flag of grids

    @property
    def module(self) -> str:
        """Value of --run: the module that describes the runs. Raises ConfigError if the flag is missing."""
        if not self.run:
            raise ConfigError(
                "--run is missing: name a module that describes the runs, like --run=my_grid.py"
            )
        return self.run


@dataclass(frozen=True)
class GridFlags(RunnerFlags):
    """How runs are started."""

    experiment_suffix: str = flag("", "appended to the name of the folder of each Experiment")
    slurm_print_only: bool = flag(False, "Slurm: print the script and commands, submit nothing")
