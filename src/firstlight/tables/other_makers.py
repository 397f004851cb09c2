"""Names of accelerators that NVIDIA does not make: enough to say so when somebody types one."""

from __future__ import annotations

import re

# Product lines as their makers write them; what is not here is merely not known.
_LINES = (
    ("AMD", r"\b(instinct|radeon|firepro|mi ?\d{2,3}[a-z]{0,2}|rx ?\d{3,4}( ?xtx?)?|gfx\d{3,4}[a-z]?)\b"),
    ("Intel", r"\b(arc|gaudi ?\d?|ponte vecchio|data ?center gpu max|iris|xe)\b"),
    ("Google", r"\btpu\b|\btpu ?v?\d"),
    ("AWS", r"\b(trainium|inferentia|trn\d|inf\d)"),
    ("Apple", r"\b(apple|m[1-5] ?(pro|max|ultra)?)$"),
)


def other_maker(name: str) -> str:
    """'AMD' for 'MI300X' or 'Radeon RX 7900 XTX'; '' for what NVIDIA makes and for what is not known."""
    plain = " ".join(re.split(r"[\W_]+", name.lower())).strip()
    if re.search(r"\b(nvidia|geforce|rtx|gtx|quadro|tesla|jetson)\b", plain):
        return ""
    return next((maker for maker, pattern in _LINES if re.search(pattern, plain)), "")
