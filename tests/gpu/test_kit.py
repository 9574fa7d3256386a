"""What the kit for a machine without a network consists of. Downloading and installing are not tested."""

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
