"""A line whose end was cut off, by a terminal's width or with its log: the fixed words that it may go on with."""

from __future__ import annotations

import functools
import math
import re

from firstlight.diagnosis.signatures import signatures

LEAST_CHARACTERS = 16  # of the fixed words that are there
LEAST_SHARE = 0.8
LEAST_SHARE_OF_WORDS = 0.85  # where a whole word is missing, which may be the one that tells
LEAST_SIGN = 3  # letters of one word at the end, by which patterns are chosen
_QUANTIFIERS = "*+?{"
_WORDS = re.compile(r"[a-z0-9]+")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")


def completions(line: str) -> tuple[str, ...]:
    """What may be missing behind a line: of '... no kernel image is available for exec' it is 'ution'.

    Most of the fixed words must be there; whether what they complete is known, and only one thing, the caller asks.
    """
    text = line.rstrip().lower()
    sign = max(_WORDS.findall(text[-LEAST_CHARACTERS:]), key=len, default="")
    if len(sign) < LEAST_SIGN:
        return ()
    patterns = (regex for regex, lower in _patterns() if sign in lower)
    ends = (missing for regex in patterns for words in fixed_words(regex) if (missing := _missing(text, words)))
    return tuple(dict.fromkeys(ends))


def _missing(text: str, words: str) -> str:
    """The rest of the words, most of which end the text; '' where they do not, or only signs are missing."""
    lower = words.lower()
    for there in range(len(words) - 1, max(LEAST_CHARACTERS, math.ceil(LEAST_SHARE * len(words))) - 1, -1):
        if text.endswith(lower[:there]):
            missing = words[there:]
            is_enough = missing[0] != " " or there >= LEAST_SHARE_OF_WORDS * len(words)
            return missing if is_enough and any(map(str.isalnum, missing)) else ""
    return ""


@functools.cache
def _patterns() -> tuple[tuple[str, str], ...]:
    """Every pattern, and the same in small letters."""
    every = dict.fromkeys(pattern.regex for signature in signatures() for pattern in signature.patterns)
    return tuple((regex, regex.lower()) for regex in every)


def fixed_words(regex: str) -> list[str]:
    r"""The parts of a pattern that always read the same: 'cuda.h: ' and ' not found' of 'cuda\.h: \w+ not found'.

    Only outside of groups; white space of any kind is one space.
    """
    runs, depth, at = [""], 0, 0
    while at < len(regex):
        letter, following = regex[at], regex[at + 1 : at + 2]
        step, literal = 1, ""
        if letter == "\\":
            step = 2
            literal = " " if following == "s" else "" if following.isalnum() else following
        elif letter == "[":
            step = _CLASS.match(regex, at).end() - at  # type: ignore[union-attr]  # every pattern is tested to compile
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter not in ".^$|*+?{}":
            literal = letter
        at += step
        after = regex[at : at + 1]
        if after and after in _QUANTIFIERS:
            at = regex.index("}", at) + 1 if after == "{" else at + 1
            literal = " " if literal == " " and after == "+" else ""
        elif letter == "\\" and following == "b":
            continue
        if literal and depth == 0:
            runs[-1] += literal
        elif runs[-1]:
            runs.append("")
    return [run for run in runs if run]
