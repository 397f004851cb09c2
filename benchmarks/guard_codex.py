"""The corpus through the real Codex CLI: what the prefix rules of .codex/rules see, and what only the hook sees.

npm install @openai/codex
python -m benchmarks.guard_codex --codex node_modules/.bin/codex [--out results/guard-codex.json]
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from firstlight.emit.agents_texts import codex_rules
from firstlight.guard.corpus import Action, lay_out, load_corpus
from firstlight.guard.policy import read_policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--codex", required=True)
    parser.add_argument("--out", default="")
    given = parser.parse_args()
    codex = str(Path(given.codex).resolve())
    version = subprocess.run([codex, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    seen: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    stopped: list[str] = []
    for section in load_corpus():
        with tempfile.TemporaryDirectory() as folder:
            lay_out(section, folder)
            rules = Path(folder) / "firstlight.rules"
            rules.write_text(codex_rules(read_policy(f"{folder}/firstlight.toml")))
            actions = [action for action in section.actions if action.kind == "shell" and _words(action)]
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(lambda action, rules=rules: _forbidden(codex, rules, action), actions))
        for action, forbidden in zip(actions, answers, strict=True):
            if action.expect == "deny":
                (seen if forbidden else missed)[action.way] += 1
            elif forbidden:
                stopped.append(action.text)
    document = {
        "codex": version,
        "forbidden_seen": dict(sorted(seen.items())),
        "forbidden_not_seen": dict(sorted(missed.items())),
        "allowed_stopped": stopped,
        "seen": seen.total(),
        "not_seen": missed.total(),
    }
    if given.out:
        Path(given.out).write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def _words(action: Action) -> list[str]:
    """The words as a shell splits them; [] where it would not: Codex hands such text to a shell as one word."""
    try:
        return shlex.split(action.text)
    except ValueError:
        return []


def _forbidden(codex: str, rules: Path, action: Action) -> bool:
    done = subprocess.run(
        [codex, "execpolicy", "check", "--rules", str(rules), "--", *_words(action)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return bool(json.loads(done.stdout).get("decision") == "forbidden")


if __name__ == "__main__":
    main()
