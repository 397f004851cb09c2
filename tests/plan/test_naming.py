"""What options and ways are called: short, whole words, and always with the number of further steps."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Goal
from firstlight.plan.naming import LONGEST_TITLE, shortened
from firstlight.ways.kinds import LinkFile, Scope, SetVariables, Unwire, Variable, WiredBy
from firstlight.ways.way import Way
from firstlight.ways.words import WIDEST, fitted, words_of
from tests.plan.planning import NAMES, ranked_of

SITE = "/root/venv/lib/python3.12/site-packages/nvidia/cu13"
ARCHS = Variable("TORCH_CUDA_ARCH_LIST", "8.0;9.0;12.0")


def test_a_title_without_room_for_it_still_says_how_many_more_steps_there_are() -> None:
    first, *rest = (option.title for option in ranked_of("h100-spoofed-version").options)
    assert first == "wire cuda-compat 13.1 from NVIDIA's archive at each start (+1 step)"
    assert rest[0].endswith(" (+1 step)")
    built = ranked_of("pip-toolkit-without-lib64", Goal.BUILD_EXTENSIONS).options[0].title
    assert built == "link lib64 to lib in nvidia/cu13 (+2 steps)"
    cut = [each.title for each in ranked_of("vgpu-old-host").options if "..." in each.title]
    assert cut == ["install the guest driver of the host's vGPU release... (+1 step)"]
    assert max(len(each.title) for name in NAMES for each in ranked_of(name).options) <= LONGEST_TITLE


def test_a_title_is_cut_between_words_and_between_the_parts_of_a_name() -> None:
    long = "install linux-modules-nvidia-580-server-open-6.8.0-1060-azure-fde-generic-hwe and another package"
    assert shortened(long) == "install linux-modules-nvidia-580-server-open-6.8.0-1060-azure-fde..."
    assert shortened("a" * 90) == f"{'a' * 67}...", "one word that is longer than a title"
    for text in (shortened(long), fitted(long)):
        assert len(text) <= LONGEST_TITLE
        head, _, tail = text.partition("...")
        assert long.startswith(head)
        assert long[len(head)] in " -/"
        assert not tail or long[-len(tail) - 1] in " -/" or tail[0] in "-/"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (SetVariables((Variable("CUDA_HOME", "/usr/local/cuda-13.0"), ARCHS), Scope.BUILD),
         "set CUDA_HOME, TORCH_CUDA_ARCH_LIST for the shell that builds"),
        (SetVariables((Variable("CUDA_HOME", SITE),), Scope.BUILD), "set CUDA_HOME for the shell that builds"),
        (SetVariables((Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),)),
         "set CUDA_DEVICE_ORDER=PCI_BUS_ID for login shells"),
        (LinkFile(f"{SITE}/lib64", "lib"), "link lib64 to lib in nvidia/cu13"),
        (LinkFile(f"{SITE}/lib/libcudart.so", f"{SITE}/lib/libcudart.so.13"),
         "link libcudart.so to libcudart.so.13 in cu13/lib"),
        (Unwire((f"{SITE}/lib/stubs/of/another/folder",), WiredBy.LIBRARY_PATH),
         "take .../cu13/lib/stubs/of/another/folder out of LD_LIBRARY_PATH"),
    ],
)  # fmt: skip
def test_a_long_way_is_called_by_whole_words(way: Way, words: str) -> None:
    assert words_of(way) == words
    assert len(words) <= WIDEST
