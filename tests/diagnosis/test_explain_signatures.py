"""Every signature knows its own text, in the forms that old and new versions print, and no other's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.diagnosis.explain import Explained, explain_text
from firstlight.diagnosis.explain_lookup import LOOKUPS
from firstlight.diagnosis.signatures import Confidence, signatures

# code -> texts that are this, texts that are near to it and are not
EXAMPLES: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("error_examples.json").read_text())
POSITIVES = [(code, text) for code, texts in EXAMPLES.items() for text in texts["is"]]
NEAR_MISSES = [(code, text) for code, texts in EXAMPLES.items() for text in texts["is_not"]]


def codes(text: str) -> list[str]:
    return [explanation.signature.code for explanation in explain_text(text).explanations]


def test_every_signature_has_examples_and_near_misses() -> None:
    assert set(EXAMPLES) == {signature.code for signature in signatures() if not signature.product}
    assert all(texts["is"] and texts["is_not"] for texts in EXAMPLES.values())


@pytest.mark.parametrize(("code", "text"), POSITIVES, ids=lambda value: value[:50])
def test_a_signature_knows_its_own_text_and_only_it_does(code: str, text: str) -> None:
    assert codes(text) == [code]


@pytest.mark.parametrize(("code", "text"), POSITIVES, ids=lambda value: value[:50])
def test_one_message_counts_once(code: str, text: str) -> None:
    [explanation] = explain_text(text).explanations
    assert explanation.count == 1


@pytest.mark.parametrize(("code", "text"), NEAR_MISSES, ids=lambda value: value[:50])
def test_a_near_miss_is_not_taken_for_it(code: str, text: str) -> None:
    assert code not in codes(text)


@pytest.mark.parametrize("signature", signatures(), ids=lambda signature: signature.code)
def test_a_row_is_complete_and_its_placeholders_are_its_captures(signature: object) -> None:
    from firstlight.diagnosis.signatures import Signature

    assert isinstance(signature, Signature)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", signature.code)
    assert signature.patterns
    assert signature.ways_out
    assert signature.source
    assert signature.prove.run
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", signature.date)
    assert signature.confidence in Confidence
    groups: set[str] = set()
    for pattern in signature.patterns:
        assert len(pattern.anchor) >= 5
        assert "\n" not in pattern.anchor
        groups |= set(re.compile(pattern.regex).groupindex)
    names = {captured.name for captured in signature.captures}
    assert groups == names
    looked_up = set(LOOKUPS[signature.lookup][0]) if signature.lookup else set()
    texts = [signature.cause, signature.means, signature.prove.say, *signature.prove.run]
    texts += [part for way in signature.ways_out for part in (way.say, *way.run)]
    for text in texts:
        # a bare {word} is a placeholder of ours; ${WORD} and {{...}} belong to the shell and to docker
        assert set(re.findall(r"(?<![${])\{([a-z_]+)\}", text)) <= names | looked_up
        assert "!" not in text.replace("!=", "")
    assert not any("\u2014" in text for text in texts)


def test_every_pattern_is_found_by_its_anchor() -> None:
    """The anchor is a plain part of what the regex matches, else the search would never reach the regex."""
    for signature in signatures():
        if signature.product:
            continue
        texts = [" ".join(text.split()) for text in EXAMPLES[signature.code]["is"]]
        for pattern in signature.patterns:
            for text in texts:
                if re.search(pattern.regex, text):
                    assert pattern.anchor in text, (signature.code, pattern)


def test_codes_are_unique_and_the_most_basic_comes_first() -> None:
    rows = signatures()
    assert len({row.code for row in rows}) == len(rows)
    depth = {row.code: row.depth for row in rows}
    order = ["driver-not-loaded", "driver-too-old", "wheel-lacks-gpu-arch", "shared-library-missing", "cmake4-policy"]
    assert sorted(order, key=depth.__getitem__) == order


def test_no_text_repeats_the_wrong_floor_of_cuda_13() -> None:
    """580.95.05 is only the driver that came with 13.0 Update 2; the floor is branch 580, first release 580.65.06."""
    for signature in signatures():
        for text in (signature.cause, signature.means, *(way.say for way in signature.ways_out)):
            assert "580.95.05" not in text


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("driver on your system is too old (found version 12040)", "driver_cuda", "12.4"),
        ("driver on your system is too old (found version 11080)", "driver_cuda", "11.8"),
        ("Insufficient driver: 12080 < 13000", "runtime_cuda", "13.0"),
        ("with CUDA capability sm_120 is not compatible with the current PyTorch installation", "gpu", "12.0"),
        ("which is of compute capability (CC) 7.0.", "gpu", "7.0"),
        ("libcudart.so.13: cannot open shared object file", "major", "13"),
        ("NVML: Driver/library version mismatch\nNVML library version: 570.124", "library_version", "570.124"),
        ("Value 'sm_110a' is not defined for option 'gpu-name'", "arch", "sm_110a"),
    ],
)
def test_versions_are_read_out_of_the_text(text: str, name: str, value: str) -> None:
    [explanation] = explain_text(text).explanations
    assert dict(explanation.sightings[0].values)[name] == value


def test_captured_versions_stand_in_the_cause_and_in_the_commands() -> None:
    text = "The detected CUDA version (13.0) mismatches the version that was used to compile PyTorch (12.8). Please"
    [explanation] = explain_text(text).explanations
    assert "of CUDA 13.0; torch was built with 12.8" in explanation.signature.cause
    assert "export CUDA_HOME=/usr/local/cuda-12.8" in explanation.signature.ways_out[0].run[0]


def test_the_two_false_alarms_and_the_minor_mismatch_say_so() -> None:
    harmless = {signature.code for signature in signatures() if signature.not_a_fault and not signature.product}
    assert harmless == {"gb10-capability-warning", "no-gpu-while-building", "nvcc-minor-differs-from-torch"}


# --- the same messages as they come out of real logs ---

NOISE_PREFIXES = st.sampled_from(
    [
        "",
        "2026-11-15 02:38:25,123 INFO [rank0]: ",
        "2026-11-15T02:38:25.123456Z ",
        "[2026-11-15 02:38:25] ERROR ",
        "[rank3]: ",
        "(EngineCore_0 pid=4711) ERROR 11-15 02:38:25 [core.py:700] ",
        "Nov 15 02:38:25 host-a kernel: ",
        "trainer-0  | ",
        "#12 34.56 ",
        "      ",
        "E   ",
        "[1,3]<stderr>:",
        "[  123.456789] ",
    ]
)
LINE_ENDS = st.sampled_from(["\n", "\r\n"])
COLOURS = st.sampled_from(["\x1b[31m", "\x1b[01;31m\x1b[K", "\x1b[0m", "\x1b[m\x1b[K", "\x1b[38;5;196m"])
FOLDERS = st.sampled_from(["/opt/venv/lib/", "/home/user/.local/share/", "/usr/lib/", "/data/run 7/", "/a/"])
_PATH = re.compile(r"(?<![\w:/.'])/(?:[\w.+-]+/)+")


def _elsewhere(text: str, folder: str) -> str:
    """The same message about files in another folder; folders that the signature itself looks at stay."""
    looked_at = ("-packages/", "/libc.so.6: version")  # a C library elsewhere is another cause: glibc-own-copy-too-old
    return text if any(part in text for part in looked_at) else _PATH.sub(lambda _: folder, text)


def _coloured(text: str, places: list[int], colour: str) -> str:
    for place in sorted({place % (len(text) + 1) for place in places}, reverse=True):
        text = text[:place] + colour + text[place:]
    return text


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(POSITIVES),
    NOISE_PREFIXES,
    LINE_ENDS,
    st.lists(st.integers(0, 400), max_size=4),
    COLOURS,
    FOLDERS,
    st.sampled_from(["", "Traceback (most recent call last):", "step 1 loss=2.31", "\x00\xff binary \x01"]),
)
def test_a_signature_survives_prefixes_colours_folders_and_line_ends(
    example: tuple[str, str], prefix: str, end: str, places: list[int], colour: str, folder: str, around: str
) -> None:
    code, text = example
    lines = _coloured(_elsewhere(text, folder), places, colour).split("\n")
    log = end.join([around, *(prefix + line for line in lines), around, ""])
    assert code in codes(log)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(POSITIVES), st.data())
def test_a_signature_survives_a_lost_beginning_of_the_line(example: tuple[str, str], data: st.DataObject) -> None:
    code, text = example
    [explanation] = explain_text(text).explanations
    patterns = [re.search(pattern.regex, text) for pattern in explanation.signature.patterns]
    starts = [match.start() for match in patterns if match is not None]
    cut = data.draw(st.integers(0, min(starts, default=0)))
    assert code in codes(text[cut:])


@settings(max_examples=150, deadline=None)
@given(st.integers(9, 20), st.integers(0, 9), st.integers(11, 20), st.integers(0, 9))
def test_other_versions_of_the_same_messages_are_known(major: int, minor: int, other: int, digit: int) -> None:
    version, number = f"{major}.{minor}", major * 1000 + minor * 10
    [found] = explain_text(f"The NVIDIA driver on your system is too old (found version {number}).").explanations
    assert dict(found.sightings[0].values) == {"driver_cuda": version}
    message = "The detected CUDA version ({0}) mismatches the version that was used to compile\nPyTorch ({1})."
    [found] = explain_text(message.format(version, f"{other}.{digit}")).explanations
    assert dict(found.sightings[0].values) == {"nvcc": version, "torch": f"{other}.{digit}"}
    assert codes(f"libcudart.so.{major}: cannot open shared object file") == ["cudart-other-major"]
    assert codes(f"version `GLIBCXX_3.4.{other}' not found") == ["libstdcxx-too-old"]
    assert codes(f"unsatisfied condition: cuda>={version}, please") == []
    assert codes(f"requirement error: unsatisfied condition: cuda>={version}, please") == ["image-needs-newer-driver"]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([(code, text) for code, text in POSITIVES if "\n" not in text and " " in text]), st.data())
def test_a_message_wrapped_at_a_space_is_still_known(example: tuple[str, str], data: st.DataObject) -> None:
    """A terminal or CMake breaks a line at a space; only a break inside the anchor itself is out of reach."""
    code, text = example
    anchors = [
        (at, at + len(pattern.anchor))
        for signature in signatures()
        if signature.code == code
        for pattern in signature.patterns
        if (at := text.find(pattern.anchor)) >= 0
    ]
    spaces = [m.start() for m in re.finditer(" ", text) if not any(a <= m.start() < b for a, b in anchors)]
    if not spaces:
        return
    place = data.draw(st.sampled_from(spaces))
    wrapped = text[:place] + "\n" + text[place + 1 :]
    assert code in codes(wrapped)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_answered_and_nothing_is_made_up(text: str) -> None:
    assert codes(text) == []


def test_that_no_version_fits_is_not_said_where_the_index_was_never_read() -> None:
    refused = "ERROR: Could not find a version that satisfies the requirement torch==2.6.0+cu124 (from versions: none)"
    broken = EXAMPLES["index-not-reachable"]["is"][0]
    assert _codes(explain_text(f"{broken}\n{broken}\n{refused}\n")) == ["index-not-reachable"]
    assert _codes(explain_text(refused)) == ["torch-version-not-offered"]


def _codes(explained: Explained) -> list[str]:
    return [each.signature.code for each in explained.explanations]
