"""Who asks for whom, as a drawing: layers from left to right, the missing ones marked."""

from __future__ import annotations

import posixpath

from firstlight.frozen import dataclass
from firstlight.libraries.analysis import Analysis
from firstlight.report.html.markup import Markup, el, mark
from firstlight.report.html.scales import drawing, label
from firstlight.report.libs_tree import short_path, why_that_one

TALL, GAP_X, GAP_Y, EDGE = 24, 70, 10, 12
_LETTER = 7.7  # pixels, of bold text too
_LETTERS = 34
_SYSTEM = ("/lib", "/usr/lib", "/usr/lib64", "/lib64")


@dataclass(frozen=True, slots=True)
class Node:
    """A box: its name, what it says, its class ('', 'root', 'gone' or 'odd') and who asks for it."""

    key: str
    name: str
    says: str
    kind: str
    asked_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a box stands."""

    node: Node
    x: float
    y: float
    width: float

    @property
    def right(self) -> float:
        return self.x + self.width


def graph(analysis: Analysis) -> Markup:
    """The drawing."""
    nodes, left_out = _nodes(analysis)
    layers = _layers(nodes)
    tallest = max(len(layer) for layer in layers)
    spots: dict[str, Spot] = {}
    left: float = EDGE
    for layer in layers:
        wide = 22 + _LETTER * max((len(_short(node.name)) for node in layer), default=0)
        spots |= {node.key: Spot(node, left, EDGE + row * (TALL + GAP_Y), wide) for row, node in enumerate(layer)}
        left += wide + GAP_X
    width = left - GAP_X + GAP_X / 3 + EDGE
    height = 2 * EDGE + tallest * (TALL + GAP_Y) + (18 if left_out else 0)
    edges = [_edge(spots[asker], spot) for spot in spots.values() for asker in spot.node.asked_by if asker in spots]
    boxes = [_box(spot) for spot in spots.values()]
    rest = "1 library" if left_out == 1 else f"{left_out} libraries"
    words = [label(EDGE, height - 8, f"and {rest} of the system, found", class_="tick")] if left_out else []
    return drawing(width, height, *edges, *boxes, *words, name="Graph of shared libraries", class_="graph")


def _nodes(analysis: Analysis) -> tuple[list[Node], int]:
    """Boxes in load order, and how many libraries of the system are left out."""
    site = analysis.target.site
    odd = {gap.library_path: f"lacks {gap.version}" for gap in analysis.gaps if not gap.weak}
    odd |= {each.path: "a stub: every call of it fails" for each in analysis.stubs}
    opened = dict.fromkeys(path for opening in analysis.target.openings for path in opening)
    nodes = [Node(path, posixpath.basename(path), short_path(path, site), "root", ()) for path in opened]
    askers = {asker for each in analysis.missing for asker in each.requested_by}
    left_out = 0
    for each in analysis.loaded:
        if posixpath.normpath(each.path).startswith(_SYSTEM) and each.path not in odd and each.path not in askers:
            left_out += 1
            continue
        fault = odd.get(each.path, "")
        says = f"{each.name}: {fault + '; ' if fault else ''}{why_that_one(each, site)}"
        nodes.append(Node(each.path, each.name, says, "odd" if fault else "", each.requested_by))
    for gone in analysis.missing:
        what = f"damaged: {gone.damaged}" if gone.damaged else "missing"
        who = ", ".join(posixpath.basename(path) for path in gone.requested_by)
        nodes.append(
            Node(f"missing {gone.name}", gone.name, f"{gone.name}: {what}; needed by {who}", "gone", gone.requested_by)
        )
    return nodes, left_out


def _layers(nodes: list[Node]) -> list[list[Node]]:
    """Each box one layer after the first that asks for it; what is missing stands first in its layer."""
    depth: dict[str, int] = {}
    for node in nodes:
        known = [depth[asker] for asker in node.asked_by if asker in depth]
        depth[node.key] = 0 if node.kind == "root" or not node.asked_by else 1 + min(known, default=0)
    layers: list[list[Node]] = [[] for _ in range(1 + max(depth.values(), default=0))]
    for node in sorted(nodes, key=lambda node: node.kind != "gone"):
        layers[depth[node.key]].append(node)
    return [layer for layer in layers if layer] or [[]]


def _edge(start: Spot, end: Spot) -> Markup:
    x1, y1 = start.right, start.y + TALL / 2
    x2, y2 = end.x, end.y + TALL / 2
    bend = ((x1 + x2) / 2, (x1 + x2) / 2)
    if end.x == start.x:  # of one layer: around the right-hand side
        x2 = end.right
        bend = (x1 + GAP_X / 3, x1 + GAP_X / 3)
    elif end.x < start.x:  # back to an earlier layer
        x1, x2 = start.x, end.right
    gone = " gone" if end.node.kind == "gone" else ""
    return el("path", d=f"M{x1:g} {y1:g}C{bend[0]:g} {y1:g} {bend[1]:g} {y2:g} {x2:g} {y2:g}", class_=f"edge{gone}")


def _box(spot: Spot) -> Markup:
    node = spot.node
    return mark(
        node.says,
        el(
            "rect", x=spot.x, y=spot.y, width=spot.width, height=float(TALL), rx=5.0, class_=f"node {node.kind}".strip()
        ),
        label(
            spot.x + spot.width / 2, spot.y + 16, _short(node.name), text_anchor="middle", class_=node.kind or "plain"
        ),
    )


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else name[: _LETTERS - 3] + "..."
