"""Read a Slurm script, or any for a shell: what it asks the scheduler for, what it installs, what it starts where."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.lint.dockerfile import Text
from firstlight.lint.images import Image, image_named
from firstlight.lint.model import Device, Place, Ran, Service, Target, Where
from firstlight.lint.reading import Reading, plain_service
from firstlight.lint.run_options import pairs, with_run_options
from firstlight.lint.script import script_events, started_by
from firstlight.lint.shell import whole_number

_SBATCH = re.compile(
    r"#SBATCH\s+(?P<options>(?:[^#]|(?<=\S)#)*)"
)  # a # inside a word is no comment: nvcr.io#nvidia/...
_GPU = re.compile(r"(?:(?<=,)|^)(?:gres[:/])?gpu(?:[:=][^,]*)?(?=,|$)")  # gpu:h100:8, gres/gpu=8, with others beside it
_APPTAINER = ("apptainer", "singularity")
_SHORT = {
    "-J": "--job-name",
    "-N": "--nodes",
    "-n": "--ntasks",
    "-G": "--gpus",
    "-p": "--partition",
    "-C": "--constraint",
}


_FILES = (".sif", ".simg", ".sqsh")  # images as files on the disk


def read_slurm(reading: Reading) -> tuple[Target, ...]:
    """The job itself as a target, and each image that it starts something in as another."""
    asked = list(_asked(reading))
    lines = tuple(Text(line + "\n", number) for number, line in enumerate(reading.text.splitlines(), 1))
    events = tuple(script_events(lines, reading.file, reading.syntax, dict(reading.variables)))
    ran = tuple(each for each in events if isinstance(each, Ran))
    service = _service(asked, ran, reading) if asked else None
    inside = tuple(_in_images(ran, service, reading))
    whole = next(
        ((value, place) for name, value, place in asked if name == "--container-image"), ("", reading.place(1))
    )
    image = _image(whole[0]) if whole[0] else _python_of_modules(ran)
    started_inside = {each.service.place.line for each in inside if each.service is not None}
    own = tuple(each for each in ran if each.place.line not in started_inside)
    kept = tuple(each for each in events if not isinstance(each, Ran) or each.place.line not in started_inside)
    job = Target("", image, whole[1], kept, service=service, starts=own, where=Where.MACHINE)
    return (job, *inside)


def _asked(reading: Reading) -> Iterator[tuple[str, str, Place]]:
    """Option, value and line of the #SBATCH lines, which end at the first command."""
    for number, line in enumerate(reading.text.splitlines(), 1):
        match = _SBATCH.match(line)
        if match is None:
            if line.strip() and not line.lstrip().startswith("#"):
                return
            continue
        for name, value in pairs(tuple(match["options"].split())):
            short = name[:2] if re.fullmatch(r"-[A-Za-z]\S+", name) else name
            yield _SHORT.get(short, name), value or (name[2:] if short != name else ""), reading.place(number)


def _service(asked: list[tuple[str, str, Place]], ran: tuple[Ran, ...], reading: Reading) -> Service:
    """What the job asks for on one node; the shared memory of a job is the machine's own."""
    name = next((value for option, value, _ in asked if option == "--job-name"), "job")
    nodes = next((whole_number(value.split("-")[0]) or 1 for option, value, _ in asked if option == "--nodes"), 1)
    devices = [*_devices(asked, nodes)]
    if not devices:
        for each in ran:
            if each.command.program == "srun":
                given = [(*pair, each.place) for pair in pairs(each.words[1:])]
                devices += _devices(given, nodes)
    first = asked[0][2]
    # slurm.schedmd.com/sbatch.html: --exclusive gives all CPUs and GRES of the node; per socket the count is not known.
    whole = any(
        (option == "--exclusive" and not value) or option in ("--gpus-per-socket", "--tres-per-task")
        for option, value, _ in asked
    )
    return replace(plain_service(name, first), devices=tuple(devices), gpus=whole, ipc="host")


def _devices(asked: list[tuple[str, str, Place]], nodes: int) -> Iterator[Device]:
    """The GPUs of one node: --gres and --gpus-per-node are for each node, --gpus for all of them together."""
    tasks = next((whole_number(value) or 1 for option, value, _ in asked if option == "--ntasks-per-node"), 1)
    for option, value, place in asked:
        count = _count(value)
        if option in ("--gres", "--tres-per-node") and (named := _GPU.search(value)) is not None:
            yield Device(("gpu",), str(_count(named.group())), (), place)
        elif option == "--gpus-per-node" and count:
            yield Device(("gpu",), str(count), (), place)
        elif option == "--gpus-per-task" and count:
            yield Device(("gpu",), str(count * tasks), (), place)
        elif option == "--gpus" and count:
            yield Device(("gpu",), str(-(-count // nodes)), (), place)


def _count(value: str) -> int:
    """8 of gpu:h100:8, gpu:8 or 8; 1 of gpu:h100."""
    match = re.search(r"(?:^|[:=])([0-9]{1,6})(?:\(.*\))?$", value)
    return int(match.group(1)) if match is not None else 1 if value else 0


def _in_images(ran: tuple[Ran, ...], job: Service | None, reading: Reading) -> Iterator[Target]:
    """What is started in an image: by srun --container-image, by apptainer or singularity, or by docker run."""
    for each in ran:
        options = dict(pairs(each.words[1:]))
        place = each.place
        base = job or plain_service("", place)
        if each.command.program == "srun" and (name := options.get("--container-image", "")):
            yield _started(each, name, replace(base, place=place), reading)
        elif each.command.program in _APPTAINER and each.words[1:2] in (("exec",), ("run",), ("shell",)):
            name = next((word for word in each.words if word.startswith("docker://") or word.endswith(_FILES)), "")
            gives = any(word in ("--nv", "--nvccli") for word in each.words)
            given = replace(base, gpus=gives, without_driver=not gives, place=place)
            if name:
                yield _started(each, name, given, reading)
        elif each.command.program in ("docker", "podman") and each.words[1:2] == ("run",):
            name = _image_of_run(each.words[2:])
            given = with_run_options(plain_service(name, place), each.words[2:])
            if name:
                yield _started(each, name, given, reading)


def _image_of_run(words: tuple[str, ...]) -> str:
    """The image of `docker run`: the first word that is neither an option nor the value of one."""
    flags = ("--rm", "-it", "-i", "-t", "-d", "--detach", "--privileged", "--init", "-ti", "--interactive", "--tty")
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 1 if "=" in words[index] or words[index] in flags else 2
    return words[index] if index < len(words) else ""


def _started(ran: Ran, name: str, service: Service, reading: Reading) -> Target:
    starts = tuple(Ran(each, ran.place) for each in (ran.command, *started_by(ran.command)))
    events = tuple(each for each in starts[1:])
    place = _named_at(name, ran.place, reading)
    return Target("", _image(name), place, events, service=service, starts=starts, where=Where.MACHINE)


def _named_at(image: str, place: Place, reading: Reading) -> Place:
    """The line that names an image, which is above the command where a variable holds it."""
    lines = reading.text.splitlines()[: place.line]
    return next((reading.place(number) for number, line in enumerate(lines, 1) if image in line), place)


def _image(name: str) -> Image:
    """nvcr.io#nvidia/pytorch:25.04-py3 and docker://... as Docker names them; a file on the disk tells nothing."""
    plain = name.removeprefix("docker://").strip("\"'")
    if plain.endswith(_FILES) or plain.startswith(("/", "./")):
        return replace(image_named(""), name=plain)
    return image_named(plain.replace("#", "/", 1))


def _python_of_modules(ran: tuple[Ran, ...]) -> Image:
    """No image: the machine, with the Python that `module load python/3.11` brings."""
    for each in ran:
        if each.command.program in ("module", "ml"):
            for word in each.words[1:]:
                if match := re.match(r"(?i)(?:.*/)?python[/-](3\.\d+)", word):
                    return replace(image_named(""), python=match.group(1))
    return image_named("")
