"""What the name of an image tells, and what it does not."""

from __future__ import annotations

import pytest

from firstlight.lint.images import Flavour, image_named
from firstlight.versions import CudaVersion


@pytest.mark.parametrize(
    ("name", "cuda", "flavour"),
    [
        ("nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04", "12.8.1", Flavour.DEVEL),
        ("docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04", "13.0.2", Flavour.BASE),
        ("nvcr.io/nvidia/cuda:12.4.1-runtime-ubi9", "12.4.1", Flavour.RUNTIME),
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel", "12.4", Flavour.DEVEL),
        ("runpod/pytorch:2.4.0-py3.11-cuda12.4.1-devel-ubuntu22.04", "12.4.1", Flavour.DEVEL),
        ("registry.example:5000/team/train:cu128-runtime", "12.8", Flavour.RUNTIME),
    ],
)
def test_cuda_and_flavour_are_read_from_the_tag(name: str, cuda: str, flavour: Flavour) -> None:
    image = image_named(name)
    assert (image.cuda, image.flavour) == (CudaVersion.parse(cuda), flavour)
    assert image.asks_for_gpus


def test_the_torch_of_pytorchs_own_image_is_in_its_tag() -> None:
    torch = image_named("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime").torch
    assert torch is not None
    assert str(torch) == "2.5.1"


def test_only_the_devel_image_of_pytorch_carries_nvidias_requirement() -> None:
    assert image_named("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel").requires_cuda
    assert not image_named("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime").requires_cuda


@pytest.mark.parametrize(
    ("name", "python", "managed"),
    [
        ("python:3.12-slim", "3.12", False),
        ("python:3.12-bookworm", "3.12", False),
        ("ubuntu:24.04", "3.12", True),
        ("ubuntu:jammy", "3.10", False),
        ("debian:bookworm-slim", "3.11", True),
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", "3.12", True),
        ("alpine:3.20", "", False),
    ],
)
def test_the_python_of_an_image_and_whether_apt_manages_it(name: str, python: str, managed: bool) -> None:  # noqa: FBT001
    image = image_named(name)
    assert (image.python, image.managed_python) == (python, managed)


@pytest.mark.parametrize("name", ["nvcr.io/nvidia/pytorch:24.04-py3", "team/cudaless:1", "$BASE", "", "a b c"])
def test_a_name_that_tells_no_cuda_gives_none(name: str) -> None:
    assert image_named(name).cuda is None


def test_a_digest_pins_with_or_without_a_tag() -> None:
    digest = "sha256:" + "0" * 64
    assert image_named(f"nvidia/cuda@{digest}").pinned
    assert image_named(f"nvidia/cuda:12.8.1-base-ubuntu22.04@{digest}").cuda == CudaVersion(12, 8, 1)
    assert not image_named("nvidia/cuda:12.8.1-base-ubuntu22.04").pinned
