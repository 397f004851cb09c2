"""`--set` pretends one fact and says so; bad keys and values name what is accepted."""

from __future__ import annotations

import pytest

from firstlight.errors import BadInput
from firstlight.facts.document import read_machine_or_facts
from firstlight.facts.driver import ModuleKind
from firstlight.facts.known import Known, Origin, Unknown
from firstlight.facts.override import override
from firstlight.versions import ComputeCapability, DriverVersion

FACTS = read_machine_or_facts("example:h100-driver-570")


def test_a_short_name_and_the_whole_path_set_the_same_fact() -> None:
    short, whole = (override(FACTS, (setting,)) for setting in ("driver=550.54.15", "driver.kernel_version=550.54.15"))
    assert short == whole
    assert short.driver.kernel_version == Known(DriverVersion.parse("550.54.15"), "--set", Origin.PRETENDED)
    assert short.gpus == FACTS.gpus


def test_every_kind_of_value_can_be_set() -> None:
    facts = override(
        FACTS,
        (
            "capability=8.0",
            "driver.module_kind=proprietary",
            "driver.nouveau_loaded=true",
            "gpus.devices.0.power_limit_w=350.5",
            "libcuda.init_code=803",
            "libcuda.ld_library_path=/a, /b",
            "torch.compiled_for=sm_80,sm_90",
            "driver.uvm_loaded=unknown",
        ),
    )
    assert facts.gpus.devices[0].capability == Known(ComputeCapability(8, 0), "--set", Origin.PRETENDED)
    assert facts.driver.module_kind == Known(ModuleKind.PROPRIETARY, "--set", Origin.PRETENDED)
    assert facts.driver.nouveau_loaded == Known(value=True, seen_in="--set", origin=Origin.PRETENDED)
    assert facts.gpus.devices[0].power_limit_w == Known(350.5, "--set", Origin.PRETENDED)
    assert facts.libcuda.init_code == Known(803, "--set", Origin.PRETENDED)
    assert facts.libcuda.ld_library_path == ("/a", "/b")
    assert isinstance(facts.torch, Known)
    assert facts.torch.value.compiled_for == Known(("sm_80", "sm_90"), "--set", Origin.PRETENDED)
    assert facts.driver.uvm_loaded == Unknown("--set")


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("driver", "KEY=VALUE"),
        ("=5", "KEY=VALUE"),
        ("drivr=5", "driver"),
        ("driver=abc", "driver version"),
        ("driver.module_kind=half", "open, proprietary"),
        ("driver.nouveau_loaded=maybe", "true, false"),
        ("libcuda.init_code=x", "not a number"),
        ("gpus.devices.7.name=x", "1 items"),
        ("place.board_model.deeper=x", "unknown here"),
        ("place.arch.deeper=x", "nothing lies below"),
        ("place=x", "several facts"),
        ("driver.kernel_version.parts=1", "nothing lies below"),
    ],
)
def test_a_bad_setting_is_refused_saying_what_is_accepted(setting: str, named: str) -> None:
    with pytest.raises(BadInput) as caught:
        override(FACTS, (setting,))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
