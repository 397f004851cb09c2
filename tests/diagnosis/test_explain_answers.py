"""The answers depend on what the text says: the number, the name, the library, the rule behind it."""

from __future__ import annotations

import re

import pytest

from firstlight.diagnosis.explain import Explanation, explain_given, explain_text
from firstlight.diagnosis.finding import Rule
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.signatures import ONE_OF, signatures

# Rules whose `error` is no line that means a fault by itself.
NO_ERROR_LINE = {
    "mixed-gpus": "a warning of vLLM; the machine works",
}

# What a rule leaves out as '...', as a real message has it.
ELIDED = (
    ("sm_...", "sm_120"),
    ("GLIBC_...", "GLIBC_2.38"),
    ("GLIBCXX_...", "GLIBCXX_3.4.32"),
    ("libcudart.so...", "libcudart.so.12"),
    ("lib....so...", "libmpi.so.40"),
    ("...::...", "torchvision::nms"),
    ("later than ...", "later than 14"),
    ("undefined symbol: ...", "undefined symbol: ncclCommWindowRegister"),
    ("_ZN3c10...", "_ZN3c104cuda9SetDeviceEab"),
)


def the_one(text: str) -> Explanation:
    [explanation] = explain_given(text).explanations
    return explanation


def told(text: str) -> str:
    """Everything the explanation says, on one line."""
    signature = the_one(text).signature
    ways = [part for way in signature.ways_out for part in (way.say, *way.run)]
    return " ".join((signature.cause, signature.means, *signature.prove.run, *ways))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.error], ids=lambda rule: rule.code)
def test_the_error_a_rule_quotes_is_explained(rule: Rule) -> None:
    first = rule.error.splitlines()[0]
    for elided, real in ELIDED:
        first = first.replace(elided, real)
    found = [each.signature.code for each in explain_text(first).explanations]
    assert bool(found) is (rule.code not in NO_ERROR_LINE), first


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("error 46", "device-busy-46"),
        ("46", "device-busy-46"),
        ("Error: 803", "compat-stale-803"),
        ("CUDA error 804", "compat-on-unsupported-gpu-804"),
        ("cuInit gives 802", "fabric-not-ready-802"),
        ("cuInit(0) returned 46", "device-busy-46"),
        ("error code 34", "stub-library-34"),
        ("35", "driver-insufficient-35"),
        ("error 100", "no-cuda-device-100"),
        ("error 101", "invalid-device-101"),
        ("error 209", "wheel-lacks-gpu-arch"),
        ("error 222", "ptx-too-new-222"),
        ("error 214", "ecc-uncorrectable-214"),
        ("error 805", "mps-not-reachable-805"),
        ("error 999", "cuda-unknown-error-999"),
        ("error 3", "driver-init-failed-3"),
        ("error 304", "cuda-error-code"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "compat-stale-803"),
        ("cudaErrorDevicesUnavailable", "device-busy-46"),
        ("cudaErrorIllegalAddress", "cuda-error-code"),
    ],
)
def test_a_code_alone_is_looked_up(text: str, code: str) -> None:
    assert the_one(text).signature.code == code
    assert the_one(text).sightings[0].text == text


@pytest.mark.parametrize("text", ["error 9999", "error 55", "0", "error 0", "CUDA_ERROR_NO_SUCH", "error 46 bottles"])
def test_what_is_no_cuda_code_is_not_looked_up(text: str) -> None:
    assert explain_given(text).explanations == ()


@pytest.mark.parametrize("text", ["error 100", "make: *** [all] Error 2", "exit code 46\ndone", "line 1\nerror 803\n"])
def test_a_number_in_a_log_is_no_code_without_words_of_cuda(text: str) -> None:
    assert explain_text(text).explanations == ()


def test_the_row_of_all_codes_says_name_words_and_meaning() -> None:
    said = told("error 304")
    assert "error 304 (CUDA_ERROR_OPERATING_SYSTEM or cudaErrorOperatingSystem)" in said
    assert "OS call failed or operation not supported on this OS. A call to the operating system failed." in said


@pytest.mark.parametrize("limit", ["11", "12", "15"])
def test_the_compiler_to_install_is_the_limit_the_message_names(limit: str) -> None:
    said = told(f"error: #error -- unsupported GNU version! gcc versions later than {limit} are not supported!")
    assert f"apt-get install g++-{limit} " in said
    assert set(re.findall(r"g\+\+-(\d+)", said)) == {limit}


def test_the_limit_is_looked_up_where_the_message_names_only_the_toolkit() -> None:
    said = told(
        "The current installed version of g++ (13.1.0) is greater than the maximum required version by CUDA 12.0"
    )
    assert "apt-get install g++-12 " in said


@pytest.mark.parametrize("number", [11000, 11040, 11080])
def test_a_driver_that_offers_cuda_11_gets_no_way_out_that_needs_a_newer_one(number: int) -> None:
    said = told(f"The NVIDIA driver on your system is too old (found version {number}).")
    assert "--torch-backend=cu118 'torch==2.7.1'" in said
    assert "cuda-compat-13-0" not in said
    assert "cu126" not in said


def test_a_driver_that_offers_cuda_12_keeps_compat_and_the_cuda_12_build() -> None:
    said = told("The NVIDIA driver on your system is too old (found version 12040).")
    assert "cuda-compat-13-0" in said
    assert "--torch-backend=cu126" in said


def test_a_driver_older_than_cuda_11_is_only_updated() -> None:
    explanation = the_one("The NVIDIA driver on your system is too old (found version 10020).")
    assert all(not way.run for way in explanation.signature.ways_out)


def test_every_offer_of_the_cuda_12_build_names_the_driver_it_needs() -> None:
    for signature in signatures():
        for way in signature.ways_out:
            if any("cu126" in line for line in way.run):
                assert "525.60.13" in way.say, signature.code


@pytest.mark.parametrize(("arch", "toolkit"), [("107", "13.4"), ("120", "12.8"), ("103", "12.9"), ("90a", "12.0")])
def test_the_toolkit_named_is_the_first_that_knows_the_gpu(arch: str, toolkit: str) -> None:
    assert f"CUDA_HOME=/usr/local/cuda-{toolkit} " in told(
        f"nvcc fatal   : Unsupported gpu architecture 'compute_{arch}'"
    )


def test_a_missing_library_of_a_wheel_is_named_with_its_bounds() -> None:
    said = told("ImportError: libnccl.so.2: cannot open shared object file: No such file or directory")
    assert "pip install 'nvidia-nccl-cu13>=" in said
    assert ",<=" in said


def test_a_missing_library_of_the_distribution_names_its_package() -> None:
    assert "apt-get install libgomp1" in told("ImportError: libgomp.so.1: cannot open shared object file")


def test_a_library_nobody_knows_gets_no_empty_command() -> None:
    ways = the_one("libzzz.so.3: cannot open shared object file").signature.ways_out
    assert all(line.strip() for way in ways for line in way.run)


def test_no_command_deletes_the_compat_folder_of_a_host() -> None:
    ways = the_one("Error 804: forward compatibility was attempted on non supported HW").signature.ways_out
    assert "LD_LIBRARY_PATH" in ways[0].run[0]
    for way in ways:
        if any("rm -rf" in line for line in way.run):
            assert "image" in way.say


def test_wrong_commands_do_not_come_back() -> None:
    for signature in signatures():
        commands = [*signature.prove.run, *(line for way in signature.ways_out for line in way.run)]
        for line in commands:
            assert "nvidia-fabricmanager --version" not in line
            assert "==13.0.2" not in line
            assert "apt-mark hold $(" not in line


DIFF = "diff --git a/x.py b/x.py\n@@ -1,2 +1,2 @@\n"
MESSAGE = "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."


@pytest.mark.parametrize(
    "text",
    [
        "CUDA_HOME environment variable is not set: skipping the CUDA tests",
        f"before\n+    raise {MESSAGE}\nafter\n",
        f"before\n-        {MESSAGE}\nafter\n",
        f"{DIFF}- {MESSAGE}\n+ {MESSAGE}\n",
    ],
)
def test_a_line_that_only_speaks_of_the_message_gives_no_hit(text: str) -> None:
    assert explain_text(text).explanations == ()


@pytest.mark.parametrize("text", [f"Seen:\n- {MESSAGE}\n", f"- {MESSAGE}", f"+{MESSAGE}"])
def test_an_item_of_a_list_is_read(text: str) -> None:
    assert the_one(text).signature.code == "cuda-home-not-set"


def test_a_list_of_causes_says_that_it_is_one() -> None:
    """A closed list was the commonest wrong answer: the true cause was not in it."""
    [found] = explain_text(
        "OSError: libcuda.so.1: cannot open shared object file: No such file or directory"
    ).explanations
    assert found.signature.cause.endswith(ONE_OF)
    [named] = explain_text("CUDA out of memory. Tried to allocate 1.55 GiB").explanations
    assert ONE_OF not in named.signature.cause


def test_no_answer_says_twice_that_the_text_does_not_tell() -> None:
    for row in signatures():
        assert not (row.cause.endswith(ONE_OF) and "does not tell" in row.cause.removesuffix(ONE_OF)), row.code
