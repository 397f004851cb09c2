"""What the machine code of attention.cu must have besides what gate.py asks of every kernel.

Two faults give no warning. ptxas moves the exponentials behind the wait for the product that they are to overlap: right
numbers, 5 % slower. And it puts new values into registers that a product still reads: wrong numbers, now and then. Both
show in the main loop, walked in the order of the code:

    loop_faults(disassembled(cubin))      # () or ("12 of 66 MUFU.EX2 run while no product does", ...)
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][\w.]*)\s*(?P<operands>[^;]*);")
_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_REGISTER = re.compile(r"R(\d+)(?:\.\w+)*")
_WAIT = re.compile(r"gsb0, (0x[0-9a-f]+)")
FRAGMENT = 4  # registers of an A operand
_NO_RESULT = ("ST", "BRA", "BAR", "SYNCS", "RED", "UTMA", "HGMMA", "EXIT", "MEMBAR", "FENCE", "DEPBAR", "WARPSYNC")


class Instruction(NamedTuple):
    """One line of machine code, e.g. Instruction('FMUL', ('R24', 'R24', 'R3'))."""

    name: str
    operands: tuple[str, ...]

    def written(self) -> range:
        """The registers that get a result; empty for an instruction without one."""
        if self.name.startswith(_NO_RESULT):
            return range(0)
        for operand in self.operands:
            if operand.startswith(("P", "UP", "!")):
                continue  # a predicate in front of the result
            found = _REGISTER.fullmatch(operand)
            return range(int(found[1]), int(found[1]) + self._width()) if found else range(0)
        return range(0)

    def _width(self) -> int:
        parts = self.name.split(".")
        if parts[0] == "LDSM":
            return 4 if parts[-1] == "4" else 2 if parts[-1] == "2" else 1
        if "128" in parts:
            return 4
        return 2 if "64" in parts or "WIDE" in parts else 1


def main_loop(text: str) -> tuple[Instruction, ...]:
    """The body of the loop with both products in it, in the order of the code; empty where there is none.

    Waits that fail go on at the end of the code and jump back: the shortest way round is the loop.
    """
    labels: dict[str, int] = {}
    lines: list[Instruction] = []
    best: tuple[Instruction, ...] = ()
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(lines)
        elif found := _LINE.match(line):
            made = Instruction(found["name"], tuple(part.strip() for part in found["operands"].split(",")))
            lines.append(made)
            target = _TARGET.search(line) if made.name.startswith("BRA") else None
            if target and target[1] in labels:
                body = tuple(lines[labels[target[1]] :])
                if _groups(body) >= 2 and (not best or len(body) < len(best)):
                    best = body
    return best


def _groups(body: tuple[Instruction, ...]) -> int:
    return sum(each.name.startswith("HGMMA") and each.operands[-1] == "gsb0" for each in body)


def loop_faults(text: str) -> tuple[str, ...]:
    """What is wrong with the main loop, in words; empty: nothing."""
    body = main_loop(text)
    if not body:
        return ("no loop with products was found",)
    walk = _Walk()
    for each in body:
        walk.step(each)  # fills the pipeline as the step before would have
    walk.forget()
    for each in body:
        walk.step(each)
    return walk.faults()


class _Walk:
    """Goes through the loop and keeps which products still run, with their A registers."""

    def __init__(self) -> None:
        self._running: list[set[int]] = []  # one set for each group of products
        self._open: set[int] = set()
        self.forget()

    def forget(self) -> None:
        self._exponentials = self._lonely = 0
        self._overwritten: list[str] = []

    def step(self, each: Instruction) -> None:
        if each.name.startswith("HGMMA"):
            self._product(each)
        elif each.name.startswith("WARPGROUP.DEPBAR"):
            left = _WAIT.search(", ".join(each.operands))
            count = int(left[1], 16) if left else 0
            self._running = self._running[len(self._running) - count :] if count else []
        else:
            self._other(each)

    def _product(self, each: Instruction) -> None:
        found = _REGISTER.fullmatch(each.operands[1])
        if found:  # A is in registers
            self._open |= set(range(int(found[1]), int(found[1]) + FRAGMENT))
        if each.operands[-1] == "gsb0":
            self._running.append(self._open)
            self._open = set()

    def _other(self, each: Instruction) -> None:
        if each.name == "MUFU.EX2":
            self._exponentials += 1
            self._lonely += not self._running
        in_use = self._open.union(*self._running)
        if hit := in_use.intersection(each.written()):
            self._overwritten.append(f"{each.name} writes R{min(hit)}")

    def faults(self) -> tuple[str, ...]:
        found = []
        if not self._exponentials:
            found.append("no MUFU.EX2 in the main loop")
        if self._lonely:
            found.append(f"{self._lonely} of {self._exponentials} MUFU.EX2 run while no product does")
        if self._overwritten:
            first = self._overwritten[0]
            found.append(f"{len(self._overwritten)} writes into registers that a product still reads, e.g. {first}")
        return tuple(found)
