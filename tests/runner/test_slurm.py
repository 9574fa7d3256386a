"""The Slurm backend, with a stand-in that really runs the jobs."""

import subprocess

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)  # seconds
SLURM = "--runner=slurm"


def submitted(cluster):
    return len(list(cluster.glob("*.pid")))


def test_every_run_is_a_job_and_a_second_start_submits_only_what_has_failed(grid, cluster):
    grid.fail(1)
    ended = grid.run(SLURM, "--slurm_workdir=slurm")
    assert ended.returncode == 1 and "FAILED: 01_a_num_1: exit code 1" in ended.stdout
    assert grid.states() == {"0": "finished", "1": "failed", "2": "finished"}
    assert submitted(cluster) == 3
    assert len(list((grid.folder / "slurm").glob("sbatch_*.sh"))) == 3
    (grid.folder / "outcome_1").unlink()
    assert grid.run(SLURM, "--slurm_workdir=slurm").returncode == 0
    assert submitted(cluster) == 4
    assert [row["state"] for row in grid.results()] == ["finished"] * 3


def test_ctrl_c_leaves_the_jobs_in_the_queue_and_the_next_start_follows_them(grid, cluster):
    (grid.folder / "wait").touch()
    process = grid.start(SLURM)
    wait_until(lambda: submitted(cluster) == 3 and bool(grid.starts(0)))
    process.terminate()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    again = grid.start(SLURM)
    wait_until(lambda: "3 are still in the queue" in again.stdout.readline())
    (grid.folder / "wait").unlink()
    again.communicate(timeout=120)
    assert again.returncode == 0
    assert submitted(cluster) == 3
    assert [len(grid.starts(number)) for number in range(3)] == [1, 1, 1]


def test_scancel_stops_the_runs_and_a_second_start_resumes_them(grid, cluster):
    (grid.folder / "wait").touch()
    process = grid.start(SLURM)
    scancel = grid.files / "scancel.sh"
    wait_until(lambda: scancel.exists() and scancel.read_text().count(".id") == 3)
    wait_until(lambda: bool(grid.starts(0) and grid.starts(1)))
    subprocess.run(["bash", str(scancel)], env=grid.env, check=True)
    process.communicate(timeout=120)
    assert grid.states()["0"] == grid.states()["1"] == "stopped"
    (grid.folder / "wait").unlink()
    assert grid.run(SLURM).returncode == 0
    assert len(grid.starts(0)) == len(grid.starts(1)) == 2


def test_a_job_at_its_time_limit_is_queued_again_its_time_adds_up_and_scancel_stops_it(grid, cluster):
    grid.describe([0])
    (grid.folder / "wait").touch()
    process = grid.start(SLURM, "--slurm_timeout=10s")
    wait_until(lambda: submitted(cluster) >= 2 and len(grid.starts(0)) >= 2)
    [id_file] = grid.files.glob("*.id")
    newest = str(999 + submitted(cluster))
    wait_until(lambda: id_file.read_text().strip() == newest)
    subprocess.run(["bash", str(grid.files / "scancel.sh")], env=grid.env, check=True)
    process.communicate(timeout=120)
    assert process.returncode == 130 and grid.states() == {"0": "stopped"}
    assert float(grid.results()[0]["seconds"]) > 3
    (grid.folder / "wait").unlink()
    assert grid.run(SLURM).returncode == 0 and grid.states() == {"0": "finished"}


def test_jobs_of_another_suffix_or_command_are_not_taken_for_those_of_this_grid(grid, cluster):
    grid.describe([0])
    (grid.folder / "wait").touch()
    for number, flags in enumerate(([], ["--experiment_suffix=b"]), start=1):
        process = grid.start(SLURM, *flags)
        wait_until(lambda: submitted(cluster) == number and len(grid.starts(0)) == number)  # noqa: B023
        process.terminate()
        process.communicate(timeout=120)
    description = grid.folder / "my_grid.py"
    description.write_text(description.read_text().replace("program.py", "program.py --other"))
    refused = grid.run(SLURM)
    (grid.folder / "wait").unlink()
    assert refused.returncode == 2 and "is in Slurm's queue with another command" in refused.stdout
    assert submitted(cluster) == 2


def test_a_job_that_slurm_refuses_has_failed_with_slurms_reason(grid, cluster):
    (cluster / "refuse").touch()
    ended = grid.run(SLURM)
    assert ended.returncode == 1
    assert "FAILED: 00_a_num_0: sbatch: sbatch: error: QOSMaxSubmitJobPerUserLimit" in ended.stdout


def test_print_only_starts_nothing_and_its_commands_can_be_pasted_into_a_shell(grid):
    folder = grid.folder / 'my "runs"; $HOME'
    flags = ["--slurm_gpus_per_job=2", "--slurm_cpus_per_gpu=7", "--slurm_partition=gpu"]
    ended = grid.run(SLURM, "--slurm_print_only=True", f"--train_dir={folder}", *flags)
    assert ended.returncode == 0 and ended.stdout.startswith("#!/bin/bash\n") and not folder.exists()
    commands = [line for line in ended.stdout.splitlines() if line.startswith("sbatch ")]
    assert len(commands) == 3
    assert commands[0].startswith("sbatch -p gpu --gres=gpu:2 -c 14 --parsable --output ")
    shell = f"sbatch() {{ printf '%s\\n' \"$@\"; }}\n{commands[0]}"
    words = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert words.splitlines()[-1] == str(folder / "grid" / "runner" / "sbatch_a_00_a_num_0.sh")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("#!/bin/bash\necho $HOME $$\n", ["#!/bin/bash", "echo $HOME $$", "python -m {job}"]),
        (
            "cd $HOME\ntimeout $TIMEOUT $CMD\n[ $$? = 124 ] && sbatch $PARTITION-c $CPU x\n",
            ["cd $HOME", "timeout 8h python -m {job}", "[ $? = 124 ] && sbatch -p gpu -c 14 x"],
        ),
    ],
    ids=["version 1", "version 2"],
)
def test_templates_of_versions_1_and_2_work(grid, template, expected):
    (grid.folder / "template.sh").write_text(template)
    flags = ["--slurm_print_only=True", "--slurm_timeout=8h", "--slurm_partition=gpu"]
    ended = grid.run(SLURM, "--slurm_sbatch_template=template.sh", *flags)
    job = f"sample_factory.runner.run_job {grid.files / '00_a_num_0.order.json'}"
    script = [
        line for line in ended.stdout.splitlines() if line and not line.startswith("sbatch -p gpu --gres")
    ]
    assert script == [line.format(job=job) for line in expected]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "there is no sbatch on this machine"),
        (["--slurm_print_only=True", "--slurm_sbatch_template=none.sh"], "=none.sh: No such file"),
    ],
)
def test_a_machine_without_slurm_or_a_missing_template_is_one_line(grid, flags, message):
    ended = grid.run(SLURM, *flags)
    assert ended.returncode == 2
    assert message in ended.stdout and len(ended.stdout.splitlines()) == 1
    assert not (grid.folder / "train_dir").exists()


def test_an_id_file_of_a_stranger_is_no_argument_of_scancel(grid, cluster):
    grid.fail(1)
    assert grid.run(SLURM).returncode == 1
    for file in grid.files.glob("*.id"):
        file.write_text("--user=somebody")
    ended = grid.run(SLURM)
    assert ended.returncode == 2 and "does not hold the id of a job" in ended.stdout
