"""What a host said of its work: data of others, held against its schema, turned into an outcome. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from firstlight.fleet.proofs import of_bench, of_verify
from firstlight.fleet.reply import between_marks
from firstlight.fleet.run import HostEnd, HostOutcome, HostRun, Made, Verb
from firstlight.fleet.schema_check import faults, schema_named
from firstlight.visible import one_line

_SCHEMAS = {Verb.APPLY: "apply-1", Verb.UNDO: "undo-1"}
_PROOFS = {Verb.VERIFY: of_verify, Verb.BENCH: of_bench}
_LONGEST = 300
ANOTHER_AT_WORK = 4  # the exit code of `apply` and `undo` for that


def outcome_of(host: HostRun, verb: Verb, printed: str, *, token: str) -> HostOutcome:
    """What became of a host that answered."""
    answer = _answer(printed, token)
    if answer is None:
        return HostOutcome(_ended(host, HostEnd.FAILED, "what it printed is not an answer of firstlight"))
    log, journal = _text(answer, "log"), _text(answer, "journal")
    state = answer.get("state")
    if state == "busy":
        return HostOutcome(_ended(host, HostEnd.BUSY, f"{_text(answer, 'who')} since {_text(answer, 'since')}"))
    if state == "taken back already":
        return HostOutcome(_ended(host, HostEnd.NOTHING, ""))
    if state == "died":
        why = "its work ended without an exit code: it was killed, or the machine restarted"
        return HostOutcome(_ended(host, HostEnd.FAILED, why), "", journal, log)
    if state != "ended" or not isinstance(answer.get("code"), int):
        return HostOutcome(_ended(host, HostEnd.FAILED, _text(answer, "reason") or "it did not say why"))
    if verb in _PROOFS:
        return _PROOFS[verb](host, answer, answer["code"])
    return _of_work(host, verb, answer, code=answer["code"])


def _of_work(host: HostRun, verb: Verb, answer: dict[str, Any], *, code: int) -> HostOutcome:
    printed, log, journal = _text(answer, "printed"), _text(answer, "log"), _text(answer, "journal")
    document, fault = _document(printed, verb)
    if document is None:
        lines = [line for line in log.splitlines() if line.strip()]
        said = fault if code == 0 or not lines else lines[-1].removeprefix("firstlight: ")
        end = HostEnd.BUSY if code == ANOTHER_AT_WORK else HostEnd.FAILED
        return HostOutcome(_ended(host, end, said), "", journal, log)
    made = _with_made(host, document) if verb is Verb.APPLY else host
    told = replace(made, digest=_digest(document, verb), steps=_done_steps(document))
    end, reason = _end(document, code)
    if end is HostEnd.NOTHING and document.get("resumed"):
        end = HostEnd.DONE
    return HostOutcome(_ended(told, end, reason), printed, journal, log)


def _end(document: dict[str, Any], code: int) -> tuple[HostEnd, str]:
    ending, failure = document["ending"], document["failure"]
    if failure is not None:
        return HostEnd.FAILED, str(failure["message"])
    if code == 0 and ending in ("done", "nothing to do"):
        return (HostEnd.DONE if ending == "done" else HostEnd.NOTHING), ""
    if ending == "done":
        return HostEnd.FAILED, "the steps are done, and verify failed there"
    persons = ", ".join(str(each["title"]) for each in document.get("by_a_person", ()))
    if ending in ("by a person", "nothing to do") and persons:
        return HostEnd.FAILED, f"only you can do it: {persons}"
    return HostEnd.FAILED, f"it ended with {code} ({ending})"


def _with_made(host: HostRun, document: dict[str, Any]) -> HostRun:
    """The host with the runs that its journal got: those that were finished first, then the one of this call."""
    numbers = [*document["resumed"]]
    known = {made.number: made for made in host.made}
    found = {**known, **{number: known.get(number, Made(number)) for number in numbers}}
    if document["run"] is not None and document["run"] not in found and document["ending"] != "nothing to do":
        found[document["run"]] = Made(document["run"], document["digest"])
    return replace(host, made=tuple(found[number] for number in sorted(found)))


def _digest(document: dict[str, Any], verb: Verb) -> str:
    if verb is Verb.APPLY:
        return str(document["digest"])
    return str(document["run"]["digest"]) if document["run"] is not None else ""


def _done_steps(document: dict[str, Any]) -> tuple[str, ...]:
    return tuple(one_line(str(step["title"])) for step in document.get("steps", ()) if step["state"] == "done")


def _document(printed: str, verb: Verb) -> tuple[dict[str, Any] | None, str]:
    """What `firstlight` printed there, or None and why it is not taken."""
    try:
        document = json.loads(printed)
    except (ValueError, RecursionError):
        return None, "what firstlight printed there is not JSON"
    wrong = next(faults(document, schema_named(_SCHEMAS[verb])), "")
    if wrong:
        return None, f"what firstlight printed there does not fit its schema: {wrong}"
    return document, ""


def _answer(printed: str, token: str) -> dict[str, Any] | None:
    # Ansible hands lines over with the ends that the host gave them
    found = between_marks(printed.replace("\r\n", "\n").encode("utf-8", "surrogatepass") + b"\n", token)
    try:
        answer = json.loads(found) if found is not None else None
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _text(answer: dict[str, Any], name: str) -> str:
    found = answer.get(name)
    return found if isinstance(found, str) else ""


def _ended(host: HostRun, end: HostEnd, reason: str) -> HostRun:
    return replace(host, end=end, reason=one_line(" ".join(reason.split()))[:_LONGEST])
