"""Templates filled with quoted values: a plain string in a template stops the emitter."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from firstlight.emit.quoting import Quoted

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """The text of a template of this package, e.g. render("bash.sh.j2", volume=sh("/workspace")).

    Values that are written must be Quoted or int; others (tuples, dataclasses) may be looped over and asked.
    Quoting inside a template: {{ word | sh }}, and likewise comment, yaml, json, dockerfile.
    """
    return _environment().get_template(template).render(**values)


@functools.cache  # a kind fills several templates, and this reads and compiles each once
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701 no HTML is written; `finalize` refuses what is not quoted
        loader=PackageLoader("firstlight.emit", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # ${#variable} is shell
        comment_end_string="##}",
        finalize=_only_quoted,
    )
    environment.filters.update(_filters())
    return environment


def _only_quoted(value: object) -> object:
    # Literal text of the template does not come by here: Jinja asks for what is inside {{ }} alone.
    assert isinstance(value, (Quoted, int)), f"not quoted for its language: {value!r}"
    return value


def _filters() -> dict[str, Any]:
    from firstlight.emit import quoting

    return {
        "sh": quoting.sh,
        "sh_words": quoting.sh_words,
        "comment": quoting.comment,
        "yaml": quoting.yaml_text,
        "ansible": quoting.ansible_text,
        "json": quoting.json_text,
        "devcontainer": quoting.devcontainer_text,
        "dockerfile": quoting.dockerfile_text,
        "exec": quoting.dockerfile_exec,
    }
