"""pod_setup.sh in a clean root: a shell and apt, local repositories, the real torch for processors, the real verify."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import pytest

from tests.apply.debs import Repository
from tests.system.pods import NEEDS, VOLUME, Pod, pod_in
from tests.system.wheels_again import pack_again, with_needs

TORCH_HERE = version("torch")
pytestmark = [
    *NEEDS,
    pytest.mark.skipif(not TORCH_HERE.endswith("+cpu"), reason=f"torch {TORCH_HERE} is not the build for processors"),
]


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    folder = tmp_path_factory.mktemp("pod")
    for name in (*with_needs("torch"), "numpy"):
        pack_again(name, folder / "wheels")
    repository = Repository(folder / "apt")
    want, more = f"torch=={TORCH_HERE}", ("g++", "python3.11-dev")
    with pod_in(folder, want, wheels=folder / "wheels", repository=repository, more=more) as made:
        yield made


def test_a_root_with_nothing_but_a_shell_and_apt_is_brought_up_and_proved(pod: Pod) -> None:
    assert pod.run("sh", "-c", "command -v python3").returncode != 0
    done = pod.set_up()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu" in done.stdout
    assert pod.apt_asked
    assert any("torch-" in each for each in pod.index.asked)


def test_the_second_run_changes_nothing(pod: Pod) -> None:
    before = pod.everything()
    done = pod.set_up()
    after = pod.everything()
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()


def test_a_restart_comes_back_without_a_download(pod: Pod) -> None:
    pod.apt_asked.clear()
    pod.index.asked.clear()
    pod.restart()
    assert pod.run("sh", "-c", "command -v python3").returncode != 0
    done = pod.set_up()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (pod.apt_asked, pod.index.asked) == ([], [])
    assert "making" not in done.stderr  # the environments are on the volume
    shown = pod.run(
        "bash", "-lc", "command -v python && python -c 'import torch; print(torch.__version__, torch.ones(1).numpy())'"
    )
    assert shown.stdout.splitlines() == [f"{VOLUME}/firstlight/env/bin/python", f"{TORCH_HERE} [1.]"], shown.stderr
    assert shown.stderr == ""  # without numpy torch warns
