from pathlib import Path

from sample_factory.checkpoints.milestones import Milestone, find_milestones


def test_milestones_on_disk_are_found_by_version_and_other_files_are_ignored(tmp_path):
    saved = [Milestone(1, 999_999_999, 7), Milestone(1, 1_000_000_001, 8), Milestone(0, 3, 9)]
    for milestone in saved:
        path = milestone.path(tmp_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in ("mine.pth.milestone", "checkpoint_5_6.pth.milestone", "checkpoint_000000005_6.pth"):
        (tmp_path / "checkpoint_p1" / "milestones" / name).touch()
    assert find_milestones(tmp_path, 1) == saved[:2]
    assert find_milestones(tmp_path, 0) == saved[2:] and find_milestones(tmp_path, 2) == []


def test_the_path_in_no_folder_is_relative_to_the_experiment():
    path = Milestone(2, 5, 640).path(Path())
    assert str(path) == "checkpoint_p2/milestones/checkpoint_000000005_640.pth.milestone"
