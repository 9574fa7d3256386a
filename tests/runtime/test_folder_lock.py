import os

import pytest

from sample_factory.runtime.child import Child
from sample_factory.runtime.folder_lock import FolderInUse, FolderLock
from tests.runtime.bodies import HoldsOn
from tests.waiting import eventually, kill_9, wait_ready


def is_free(folder) -> bool:
    try:
        FolderLock(folder).release()
    except FolderInUse:
        return False
    return True


def test_a_folder_has_one_holder_and_the_error_of_a_second_one_names_it(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderInUse, match=f"process {os.getpid()} or one of its children"):
        FolderLock(tmp_path)
    lock.release()
    assert is_free(tmp_path)


def test_no_other_account_can_open_the_file_and_so_hold_the_folder(tmp_path):
    lock = FolderLock(tmp_path)
    assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600
    lock.release()
    lock.release()  # a second time is no error, and closes no file of another one


def test_a_child_that_was_given_the_lock_holds_it_until_it_ends_however_that_happens(tmp_path):
    lock = FolderLock(tmp_path)
    child = Child("child", HoldsOn, (lock,))
    child.start()
    wait_ready(child, 15)
    lock.release()
    assert not is_free(tmp_path), "the child may still save"
    kill_9(child.pid)
    assert eventually(lambda: is_free(tmp_path))
    child.kill()
