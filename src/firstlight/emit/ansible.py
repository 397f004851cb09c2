"""An Ansible playbook with modules of ansible-core alone: what is there is left as it is, and check mode works."""

from __future__ import annotations

from firstlight import __version__
from firstlight.emit.bash import pythons_of, shell_text, wiring_in
from firstlight.emit.document import Emitted, EmittedFile, ToRun, made_by
from firstlight.emit.header import header_lines
from firstlight.emit.preflight import preflight_functions
from firstlight.emit.quoting import Quoted, ansible_text, comment, yaml_text
from firstlight.emit.rendering import render
from firstlight.emit.subject import Subject
from firstlight.emit.tool import REQUIREMENT, emitted_wheel, tool_key, where_from
from firstlight.frozen import dataclass
from firstlight.ways.nvidia_repository import REPOSITORIES
from firstlight.ways.start_file import LINE_FILE, MODULE, START_LINE, start_module
from firstlight.ways.start_script import run_script, wire_script

HOME = "/opt/firstlight"
NAME = "playbook.yml"
_INFO = f"firstlight-{__version__}.dist-info"
_HOLDS = (
    "import sys; from importlib.metadata import version; "
    "sys.exit(any(version(name) != wanted for name, _, wanted in (each.partition('==') for each in sys.argv[1:])))"
)
_HAS_NUMPY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('numpy') is None)"
_PACKAGES = "{{ firstlight_purelib.stdout }}/"  # of the environment, as a task before asks


@dataclass(frozen=True, slots=True)
class _Install:
    """One run of pip; what was installed before is named again so that it stays."""

    title: str
    argv: Quoted


@dataclass(frozen=True, slots=True)
class _File:
    title: str
    name: str  # in the folder files
    folder: str  # on the host
    text: str
    mode: str

    @property
    def in_packages(self) -> bool:
        return self.folder == _PACKAGES


@dataclass(frozen=True, slots=True)
class _Compat:
    package: str
    files: tuple[_File, ...]


def emit_ansible(subject: Subject) -> Emitted:
    """playbook.yml: refuses hosts that do not fit, installs, wires compat where the driver needs it, proves."""
    gates, compat, wheel = subject.gates, _compat(subject), subject.wheel
    text = render(
        "playbook.yml.j2",
        header=header_lines(subject, "ansible"),
        title=f"torch {gates.torch}",
        home=Quoted(HOME),
        pythons=_words(pythons_of(subject)),
        parts=tuple(_installs(subject)),
        has_numpy=_texts((f"{HOME}/env/bin/python", "-I", "-c", _HAS_NUMPY)),
        numpy=_texts((*_pip("env"), subject.numpy)),
        compat=compat,
        repositories=Quoted(REPOSITORIES),
        holds=_texts((f"{HOME}/env/bin/python", "-I", "-c", _HOLDS, *subject.requirements)),
        wheel=subject.wheel,
        tool=Quoted(_tool(subject)),
        install_tool=_texts(
            (*_pip(f"tool-{tool_key(subject)}"), f"{HOME}/wheels/{wheel.name}" if wheel else REQUIREMENT)
        ),
        tool_made=Quoted(f"{_tool(subject)}/lib/python{{{{ firstlight_version.stdout }}}}/site-packages/{_INFO}"),
        verify=_verify(subject),
    )
    to_run = (ToRun("Bring up the hosts of an inventory", f"ansible-playbook --inventory HOSTS {NAME}"),)
    notes = (
        where_from(subject),
        "--check --diff says what it would change. "
        "-e firstlight_disable_require=true continues where a host does not fit; --skip-tags verify skips the proof.",
    )
    files = [EmittedFile(NAME, text), EmittedFile("files/firstlight.sh", shell_text(subject, HOME)), *_scripts(subject)]
    if compat is not None:
        files += [EmittedFile(f"files/{file.name}", file.text, int(file.mode, 8)) for file in compat.files]
    return Emitted(
        "ansible", tuple(files), gates, subject.plan.digest, notes, to_run=to_run, wheel=emitted_wheel(subject)
    )


def _scripts(subject: Subject) -> tuple[EmittedFile, ...]:
    """What is read where the play is started and run on the host: the same shell as in every other kind."""
    gates = preflight_functions(subject.gates, subject.target.machine)
    asked = render("gates_of_host.sh.j2", made_by=made_by(), gates=gates, compat=bool(subject.compat))
    finishing = Quoted(render("finish_packages.sh.j2"))
    finished = render("finish_on_host.sh.j2", made_by=made_by(), finish_packages=finishing)
    return EmittedFile("files/gates.sh", asked), EmittedFile("files/finish_packages.sh", finished)


def _texts(words: tuple[str, ...]) -> Quoted:
    """A YAML list in one line, in which no variables are looked for."""
    return Quoted("[" + ", ".join(ansible_text(word) for word in words) + "]")


def _words(words: tuple[str, ...]) -> Quoted:
    """A YAML list of words that are numbers and dots; what is marked !unsafe compares unequal to what a host says."""
    return Quoted("[" + ", ".join(yaml_text(word) for word in words) + "]")


def _pip(environment: str) -> tuple[str, ...]:
    return (f"{HOME}/{environment}/bin/python", "-m", "pip", "install", "--disable-pip-version-check")


def _tool(subject: Subject) -> str:
    """The environment of firstlight there; another wheel gets another one."""
    return f"{HOME}/tool-{tool_key(subject)}"


def _verify(subject: Subject) -> Quoted:
    """The proof through the start script, which asks cuInit and notes what it said."""
    prove = (f"{_tool(subject)}/bin/firstlight", "verify", "--python", f"{HOME}/env/bin/python")
    return _texts((f"{HOME}/compat/run", *prove) if subject.compat else prove)


def _installs(subject: Subject) -> list[_Install]:
    found: list[_Install] = []
    before: tuple[str, ...] = ()
    for part in subject.parts:
        index = ("--index-url", part.index) if part.index else ()
        title = f"Install {comment(', '.join(part.requirements))}".replace("{", "(").replace("}", ")")
        found.append(_Install(title, _texts((*_pip("env"), *index, *part.requirements, *before))))
        before += part.requirements
    return found


def _compat(subject: Subject) -> _Compat | None:
    if not subject.compat:
        return None
    part = subject.compat[0]
    # where the package puts it; it stays there, so that apt can take it away again
    wiring = wiring_in(subject, HOME, folder=f"/usr/local/cuda-{part.cuda.release}/compat")
    ours = f"{HOME}/compat/"
    files = (
        _File("Write what shells read to decide about compat", "wire.sh", ours, wire_script(wiring), "0644"),
        _File("Write what starts programs with it", "run", ours, run_script(wiring), "0755"),
        _File("Write what Python reads at its start", f"{MODULE}.py", _PACKAGES, start_module(wiring), "0644"),
        _File("Let Python read it", LINE_FILE, _PACKAGES, START_LINE, "0644"),
    )
    return _Compat(part.package, files)
