"""What the kit for a machine without a network consists of. Downloading and installing are not tested."""

import zipfile

from tests.gpu import kit
from tests.test_packaging import PINNED


def test_packages_have_the_versions_of_the_tests_where_these_have_any_and_torch_is_not_among_them():
    versions = {requirement.partition(";")[0] for requirement in PINNED}
    numpy = set()
    for python in ("3.12", "3.14"):
        found = kit.requirements(python)
        exact = {requirement for requirement in found if "==" in requirement}
        assert len(found) == len(kit.PACKAGES) and len(exact) >= 10 and exact <= versions
        assert not any(name.startswith("torch") for name in found)
        numpy |= {name for name in exact if name.startswith("numpy")}
    assert len(numpy) == 2, "of each Python its own"


def test_a_wheel_loses_what_its_patterns_leave_out_and_keeps_permissions(tmp_path):
    wheel = tmp_path / "envpool-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in (
            "envpool/atari/atari.so",
            "envpool/mujoco/a.so",
            "envpool/__init__.py",
            kit.ENVPOOL_ENTRY,
        ):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o755 << 16
            file.writestr(entry, f"# {name}")
    kit.shorten(wheel, kit.LEFT_OUT["envpool"])
    with zipfile.ZipFile(wheel) as file:
        left = file.namelist()
        assert left == ["envpool/atari/atari.so", "envpool/__init__.py", kit.ENVPOOL_ENTRY]
        assert file.read(kit.ENVPOOL_ENTRY) == kit.ENVPOOL_SUITES
        assert file.getinfo("envpool/atari/atari.so").external_attr >> 16 == 0o755
