"""How hosts are named: what is accepted, and what is refused before anything is connected to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import BadInput
from firstlight.fleet.target import MOST_HOSTS, Target, once_each, parse_target, parse_targets


@pytest.mark.parametrize(
    ("given", "host", "user", "port"),
    [
        ("node01", "node01", "", 0),
        ("root@10.0.0.7:2222", "10.0.0.7", "root", 2222),
        ("me.you@pod.example.org", "pod.example.org", "me.you", 0),
        ("[fe80::1%eth0]:22", "fe80::1%eth0", "", 22),
        ("2001:db8::7", "2001:db8::7", "", 0),
        ("a@b@host", "host", "a@b", 0),
    ],
)
def test_a_host_is_read(given: str, host: str, user: str, port: int) -> None:
    assert parse_target(given) == Target(given, host, user, port)


@pytest.mark.parametrize(
    "given",
    [
        "", " ", "two words", "-oProxyCommand=touch /tmp/x", "root@-oProxyCommand=x", "-l@host", "host:0", "host:70000",
        "host:22a", "host:", "[::1", "host\n", "h;ls", "$(id)", "`id`", "a'b", "host:²", "x" * 300,
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused(given: str) -> None:
    with pytest.raises(BadInput, match="accepted"):
        parse_target(given)


@given(st.text(max_size=40))
def test_no_text_becomes_an_option_of_ssh(text: str) -> None:
    try:
        words = parse_target(text).words
    except BadInput:
        return
    host = words[-1]
    assert words[-2] == "--"
    assert not host.startswith("-")
    assert not any(letter.isspace() or letter in "'\"`$;&|<>\\" for word in words for letter in word)


def test_a_name_that_was_given_twice_and_too_many_are_refused() -> None:
    assert [target.name for target in parse_targets("a, b")] == ["a", "b"]
    with pytest.raises(BadInput, match="given twice"):
        parse_targets("a,b,a")
    with pytest.raises(BadInput, match="no host"):
        parse_targets(" , ")
    with pytest.raises(BadInput, match=f"at most {MOST_HOSTS:,}"):
        parse_targets(",".join(f"n{number}" for number in range(10_000)))


def test_one_machine_under_two_names_is_refused() -> None:
    one, two = parse_target("a"), parse_target("b")
    once_each(((one, "10.0.0.1:22"), (two, "10.0.0.1:2222")))
    with pytest.raises(BadInput, match="'a' and 'b' are the same host"):
        once_each(((one, "10.0.0.1:22"), (two, "10.0.0.1:22")))
