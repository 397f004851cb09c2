"""NVIDIA_REQUIRE_CUDA is read as the container toolkit reads it."""

from __future__ import annotations

import pytest

from firstlight.lint.require_cuda import Offered, meets
from firstlight.versions import CudaVersion, DriverVersion

H100 = Offered(CudaVersion(12, 4), DriverVersion.parse("550.127.05"), "tesla", "9.0")
GEFORCE = Offered(CudaVersion(12, 4), DriverVersion.parse("550.127.05"), "geforce", "8.9")


@pytest.mark.parametrize(
    ("expression", "host", "answer"),
    [
        ("cuda>=12.4", H100, True),
        ("cuda>=13.0", H100, False),
        ("cuda>=13.0 brand=tesla,driver>=550,driver<551", H100, True),
        ("cuda>=13.0 brand=tesla,driver>=550,driver<551", GEFORCE, False),
        ("cuda>=13.0 brand=tesla,driver>=570,driver<571", H100, False),
        ("driver>=550.54.14", H100, True),
        ("driver<=550.100", H100, False),
        ("arch>=9.0", H100, True),
        ("arch>=9.0", GEFORCE, False),
        ("brand!=geforce", GEFORCE, False),
        ("", H100, True),
        ("nonsense", H100, None),
        ("cuda>=13.0 brand=tesla", Offered(CudaVersion(12, 4), None, "", ""), None),
    ],
)
def test_a_space_is_or_and_a_comma_is_and(expression: str, host: Offered, answer: bool | None) -> None:  # noqa: FBT001
    assert meets(expression, host) is answer
