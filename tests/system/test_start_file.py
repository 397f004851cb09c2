"""The shell hook, the start script and the start file under kernel drivers that are not there: the right libcuda loads.

The driver's version, the GPUs and ldconfig's folder are mounts of the test's own; the libraries are stand-ins with the
real note. The shell, the dynamic loader, Python's own start and pip are the real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.ways.start_file import LINE_FILE, MODULE, START_LINE, start_module
from firstlight.ways.start_script import Wiring, run_script, wire_script
from tests.apply.stand_ins import build_libcuda, can_have_its_own_mounts

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
]
WHICH = (
    "import ctypes, os; l = ctypes.CDLL('libcuda.so.1'); code = l.cuInit(0); "
    "print(code, *sorted({line.split()[-1] for line in open('/proc/self/maps') if 'libcuda.so' in line}))"
)
OLD, OLDER, NEW, UNLISTED = "570.133.20", "550.54.15", "580.159.04", "560.35.03"


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A throw-away environment with pip."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


class Pod:
    """A machine with a driver's own libcuda, a compat folder, the two scripts and the start file in the venv."""

    def __init__(self, folder: Path, venv: Path) -> None:
        self.folder, self.venv = folder, venv
        self.own, self.compat, self.here = folder / "driver", folder / "cuda-13.0/compat", folder / "state of mine"
        build_libcuda(self.own, version=OLD, cuda=12080)
        self.here.mkdir()
        [self.site] = venv.glob("lib/python3*/site-packages")
        self.build("0")

    def build(self, answer: str) -> None:
        """The compat library with its answer, and everything that knows of it; as firstlight would write it."""
        build_libcuda(self.compat, version="580.95.05", cuda=13000, answer=answer)
        wiring = Wiring(str(self.compat), "13.0", (535, 550, 570), str(self.python), str(self.here))
        Path(wiring.wire).write_text(wire_script(wiring))
        Path(wiring.run).write_text(run_script(wiring))
        Path(wiring.run).chmod(0o755)
        for compiled in self.site.glob(f"__pycache__/{MODULE}.*"):  # of a text of the same size and second
            compiled.unlink()
        (self.site / f"{MODULE}.py").write_text(start_module(wiring))
        (self.site / LINE_FILE).write_text(START_LINE)

    @property
    def python(self) -> Path:
        return self.venv / "bin/python"

    def started(
        self, *argv: str, driver: str = OLD, mounts: str = "true", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """A command under a kernel driver ("" for none), after `mounts` in its own mount namespace."""
        version = f"mkdir /sys/module/nvidia; echo {driver} > /sys/module/nvidia/version; " if driver else ""
        script = f'set -e; mount -t tmpfs t /sys/module; {version}{mounts}; exec "$@"'
        path = {"LD_LIBRARY_PATH": str(self.own), "PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(self.folder)}
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", *argv],
            capture_output=True, text=True, check=False, timeout=60, env={**path, **environ},
        )  # fmt: skip

    def by_run(self, **given: str) -> str:
        return self.started(str(self.here / "run"), str(self.python), "-S", "-c", WHICH, **given).stdout.strip()

    def by_hook(self, shell: str = "sh", **given: str) -> str:
        script = f". '{self.here}/wire.sh'; exec '{self.python}' -S -c \"$1\""
        return self.started(shell, "-eu", "-c", script, "sh", WHICH, **given).stdout.strip()

    def by_start_file(self, **given: str) -> str:
        """What a plain Python gets; its complaints must be none."""
        done = self.started(str(self.python), "-c", WHICH, **given)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout.strip()

    def prove(self) -> None:
        """Let the start script see the library work, under the old driver."""
        assert self.started(str(self.here / "run"), "true").returncode == 0
        assert self.proof.exists()

    def why_not(self, **given: str) -> str:
        """What FIRSTLIGHT_COMPAT=on says; the program starts all the same."""
        done = self.started(str(self.python), "-c", "print('started')", FIRSTLIGHT_COMPAT="on", **given)
        assert (done.returncode, done.stdout) == (0, "started\n")
        assert done.stderr.count("\n") <= 1
        return done.stderr.strip().removeprefix("firstlight: compat is not used: ")

    @property
    def proof(self) -> Path:
        return self.here / f"works-{OLD}"

    @property
    def with_compat(self) -> str:
        return f"0 {self.compat}/libcuda.so.580.95.05"

    @property
    def without(self) -> str:
        return f"0 {self.own}/libcuda.so.{OLD}"


@pytest.fixture
def pod(tmp_path: Path, venv: Path) -> Pod:
    return Pod(tmp_path, venv)


def test_an_old_driver_gets_the_library_all_three_ways(pod: Pod) -> None:
    assert pod.by_start_file() == pod.without  # nobody has seen it work yet
    assert pod.by_run() == pod.with_compat
    assert pod.by_hook() == pod.by_hook("bash") == pod.with_compat
    assert pod.by_start_file() == pod.with_compat


@pytest.mark.parametrize(
    ("answer", "cause"),
    [("803", "cuInit gives 803"), ("804", "cuInit gives 804"), ("hang", "cuInit hangs"), ("crash", "it crashes")],
)
def test_a_library_that_does_not_start_is_never_used(pod: Pod, answer: str, cause: str) -> None:
    (pod.compat / "answer").write_text(answer)
    done = pod.started(str(pod.here / "run"), str(pod.python), "-S", "-c", WHICH)
    assert done.stdout.strip() == pod.without
    assert f"does not start on driver {OLD}; started without it ({cause})" in done.stderr
    assert pod.by_hook() == pod.without
    assert pod.by_start_file() == pod.without
    assert not pod.proof.exists()


@pytest.mark.parametrize("driver", [NEW, UNLISTED, ""])
def test_a_driver_that_needs_none_or_is_not_taken_gets_its_own(pod: Pod, driver: str) -> None:
    pod.prove()
    assert pod.by_run(driver=driver) == pod.by_hook(driver=driver) == pod.by_start_file(driver=driver) == pod.without


@pytest.mark.parametrize("mode", ["off", "no"])
def test_off_and_words_that_mean_nothing_leave_it_out(pod: Pod, mode: str) -> None:
    pod.prove()
    assert pod.by_hook(FIRSTLIGHT_COMPAT=mode) == pod.by_start_file(FIRSTLIGHT_COMPAT=mode) == pod.without
    run = pod.started(str(pod.here / "run"), "echo", "started", FIRSTLIGHT_COMPAT=mode)
    expected = (0, "started\n") if mode == "off" else (2, "")
    assert (run.returncode, run.stdout) == expected


def test_on_starts_nothing_through_the_script_where_compat_cannot_be_used(pod: Pod) -> None:
    run = (str(pod.here / "run"), "echo", "started")
    assert pod.started(*run, FIRSTLIGHT_COMPAT="on").stdout == "started\n"
    done = pod.started(*run, driver=NEW, FIRSTLIGHT_COMPAT="on")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"driver {NEW} has CUDA 13 by itself" in done.stderr
    assert "echo was not started" in done.stderr


def test_a_proof_is_of_one_driver(pod: Pod) -> None:
    pod.prove()
    assert pod.by_start_file(driver=OLDER) == pod.without
    assert pod.why_not(driver=OLDER) == f"it was not seen to work on driver {OLDER}; {pod.here}/run asks"
    assert pod.by_run(driver=OLDER) == pod.by_start_file(driver=OLDER) == pod.with_compat


def test_a_proof_is_of_one_library(pod: Pod) -> None:
    pod.prove()
    real = pod.compat / "libcuda.so.580.95.05"
    os.utime(real, (1, 1))
    assert pod.by_start_file() == pod.without
    assert "the library or the GPUs changed" in pod.why_not()
    assert pod.by_hook() == pod.with_compat  # asks again, and writes that down
    assert pod.by_start_file() == pod.with_compat
    os.utime(real, (2, 2))
    (pod.compat / "answer").write_text("803")
    assert pod.by_hook() == pod.by_run() == pod.by_start_file() == pod.without


def test_a_proof_is_of_the_same_gpus(pod: Pod) -> None:
    def gpus(*devices: str) -> str:
        made = ["mount -t tmpfs t /proc/driver", "mount -t tmpfs t /sys/bus/pci/devices"]
        for number, device in enumerate(devices):
            bus = f"0000:{number}a:00.0"
            made.append(f"mkdir -p /proc/driver/nvidia/gpus/{bus} /sys/bus/pci/devices/{bus}")
            made.append(f"echo {device} > /sys/bus/pci/devices/{bus}/device")
        return "; ".join(made)

    h100 = gpus("0x2330", "0x2331")
    assert pod.by_run(mounts=h100) == pod.with_compat
    assert pod.proof.read_text().split()[2:] == ["0x2330", "0x2331"]
    assert pod.by_start_file(mounts=h100) == pod.with_compat
    assert pod.by_start_file(mounts=gpus("0x2684")) == pod.without
    assert "the library or the GPUs changed" in pod.why_not(mounts=gpus("0x2330"))


def test_with_a_proof_no_process_asks_cuinit_again(pod: Pod) -> None:
    pod.prove()
    (pod.compat / "answer").write_text("hang")  # would take ten seconds
    script = f". '{pod.here}/wire.sh'; printf %s \"$LD_LIBRARY_PATH\""
    done = pod.started("sh", "-c", script)
    assert (done.stdout, done.stderr) == (f"{pod.compat}:{pod.own}", "")


@pytest.mark.parametrize(
    "line",
    [
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {OLD}  Sun Mar 30 00:57:11 UTC 2025",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {OLD}  Release Build  (dvs@a)  Sun Mar 30",
    ],
)
def test_without_sys_the_version_is_read_from_proc(pod: Pod, line: str) -> None:
    proc = f"mount -t tmpfs t /proc/driver; mkdir /proc/driver/nvidia; echo '{line}' > /proc/driver/nvidia/version"
    assert pod.by_run(driver="", mounts=proc) == pod.by_start_file(driver="", mounts=proc) == pod.with_compat


def test_a_libcuda_that_is_loaded_already_stays_alone(pod: Pod) -> None:
    pod.prove()
    preloaded = str(pod.own / "libcuda.so.1")
    assert pod.by_start_file(LD_PRELOAD=preloaded) == pod.without
    assert pod.why_not(LD_PRELOAD=preloaded) == "libcuda is loaded already"


def test_another_compat_folder_in_the_path_is_not_fought_with(pod: Pod) -> None:
    pod.prove()
    other = pod.folder / "cuda-13.1/compat"
    build_libcuda(other, version="590.44.01", cuda=13010)
    assert pod.by_start_file(LD_LIBRARY_PATH=str(other)) == f"0 {other}/libcuda.so.590.44.01"
    assert pod.why_not(LD_LIBRARY_PATH=str(other)) == f"LD_LIBRARY_PATH has another one, {other}"
    assert pod.why_not(LD_LIBRARY_PATH=str(pod.compat)) == ""


def _hook(*lines: str, name: str = "00-compat-12345.conf") -> str:
    """What NVIDIA's container toolkit leaves for ldconfig; ldconfig itself is not run."""
    words = " ".join(f"'{line}'" for line in lines)
    return f"mount -t tmpfs t /etc/ld.so.conf.d; printf '%s\\n' {words} > /etc/ld.so.conf.d/{name}"


@pytest.mark.parametrize("version", ["580.65.06", "590.48.01"])
def test_what_the_container_toolkit_wired_is_left_to_it(pod: Pod, version: str) -> None:
    pod.prove()
    build_libcuda(pod.folder / "image/compat", version=version, cuda=13000)
    conf = _hook("# by a hook", f"{pod.folder}/image/compat/")
    assert pod.by_run(mounts=conf) == pod.by_hook(mounts=conf) == pod.by_start_file(mounts=conf) == pod.without
    assert pod.why_not(mounts=conf).startswith("the container toolkit wired one that is as new")


def test_our_own_folder_that_the_container_toolkit_wired_is_left_to_it(pod: Pod) -> None:
    pod.prove()
    for name in ("libcuda.so.580.95.05", "libcuda.so.1"):
        (pod.compat / "libcuda.so.580.95.05").replace(pod.compat / name)
        conf = _hook(str(pod.compat))
        assert pod.by_run(mounts=conf) == pod.by_hook(mounts=conf) == pod.by_start_file(mounts=conf) == pod.without


@pytest.mark.parametrize("place", ["older", "no version", "dangling link", "no folder", "empty", "relative", "no conf"])
def test_what_the_container_toolkit_wired_is_passed_over_if_it_is_not_as_new(pod: Pod, place: str) -> None:
    pod.prove()
    image = pod.folder / "image/compat"
    build_libcuda(image, version="570.124.06", cuda=12080)  # of a CUDA 12.8 image: it does not run CUDA 13
    conf = _hook(str(image))
    if place == "no version":
        (image / "libcuda.so.570.124.06").replace(image / "libcuda.so.1")
    elif place == "dangling link":
        (image / "libcuda.so.1").unlink()
        (image / "libcuda.so.1").symlink_to("libcuda.so.590.48.01")
    elif place == "no folder":
        conf = _hook("/no/such/folder")
    elif place == "empty":
        conf = _hook("")
    elif place == "relative":
        conf = f"cd '{pod.compat}'; {_hook('.')}"
    elif place == "no conf":
        conf = _hook(str(pod.compat), name="00-compat-12345.conf.old")
    assert pod.by_run(mounts=conf) == pod.by_hook(mounts=conf) == pod.by_start_file(mounts=conf) == pod.with_compat


def test_a_copy_that_the_container_runtime_put_in_the_drivers_place_is_left_to_it(pod: Pod) -> None:
    pod.prove()
    copied = f"mount --bind '{pod.compat}' /usr/lib64"
    if not Path("/usr/lib64").is_dir():
        pytest.skip("there is no /usr/lib64 to stand in for a driver's folder")
    # /usr/lib64 may hold the loader itself, which is reached by another name then
    copied = f"cp -a /usr/lib64/. '{pod.folder}/lib64' 2>/dev/null || mkdir -p '{pod.folder}/lib64'; "
    copied += f"cp -a '{pod.compat}'/libcuda* '{pod.folder}/lib64'; mount --bind '{pod.folder}/lib64' /usr/lib64"
    (pod.folder / "lib64").mkdir()
    assert "in the driver's place already" in pod.why_not(mounts=copied)
    assert pod.by_hook(mounts=copied) == pod.without


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\x00\xfe", b"12 34\n", b"x" * 100_000])
def test_a_broken_proof_loads_nothing(pod: Pod, content: bytes) -> None:
    pod.proof.write_bytes(content)
    assert pod.by_start_file() == pod.without
    assert pod.by_hook() == pod.with_compat  # asks cuInit, and mends it
    assert pod.by_start_file() == pod.with_compat


@pytest.mark.parametrize("make", ["mkdir", "mkfifo", "ln -s loop", "ln -s /dev/zero"])
def test_something_else_in_the_place_of_the_proof_loads_nothing(pod: Pod, make: str) -> None:
    target = pod.proof.name if "loop" in make else ""
    subprocess.run([*make.replace("loop", target).split(), str(pod.proof)], check=True)
    assert pod.by_start_file() == pod.without
    assert pod.by_hook() == pod.with_compat


def test_what_may_not_be_read_loads_nothing(pod: Pod) -> None:
    pod.prove()
    for unreadable in (pod.proof, pod.here, pod.compat):
        mode = unreadable.stat().st_mode
        unreadable.chmod(0)
        drop = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", str(pod.python), "-c", WHICH)
        done = pod.started(*drop)
        unreadable.chmod(mode)
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, pod.without, ""), unreadable


@pytest.mark.parametrize("place", ["nothing", "folder", "dangling link", "text"])
def test_without_a_library_in_its_place_python_starts_as_ever(pod: Pod, place: str) -> None:
    pod.prove()
    link = pod.compat / "libcuda.so.1"
    link.unlink()
    if place == "folder":
        link.mkdir()
    elif place == "dangling link":
        link.symlink_to("nowhere")
    elif place == "text":
        link.write_text("not a library\n")
        found = link.stat()
        pod.proof.write_text(f"{found.st_size} {int(found.st_mtime)}\n")
    assert pod.by_start_file() == pod.without
    assert pod.why_not() != ""
    assert pod.started(str(pod.here / "run"), str(pod.python), "-S", "-c", WHICH).returncode in (0, 1)


def test_a_python_without_streams_starts(pod: Pod) -> None:
    marker = pod.folder / "started"
    script = f"exec '{pod.python}' -c \"open('{marker}', 'w')\" <&- >&- 2>&-"
    assert pod.started("sh", "-c", script, FIRSTLIGHT_COMPAT="on").returncode == 0
    assert marker.exists()


def _loads(pod: Pod, *argv: str) -> bool:
    """Whether the real loader was asked for the compat library, as LD_DEBUG tells."""
    done = pod.started(*argv, LD_DEBUG="files")
    assert done.returncode == 0, done.stderr[-500:]
    return "calling init" in done.stderr and str(pod.compat) in done.stderr


def test_pip_and_venv_are_skipped(pod: Pod) -> None:
    pod.prove()
    python = str(pod.python)
    assert _loads(pod, python, "-c", "pass")
    assert _loads(pod, python, "-X", "dev", "-m", "this")
    for tool in (
        ("-m", "pip", "--version"),
        ("-Im", "pip", "--version"),
        ("-W", "ignore", str(pod.venv / "bin/pip"), "--version"),
        ("-m", "venv", "--help"),
        ("-m", "ensurepip", "--version"),
    ):
        assert not _loads(pod, python, *tool), tool
    assert not _loads(pod, str(pod.venv / "bin/pip"), "--version")


def test_uv_is_not_slowed_when_it_asks_the_interpreter(pod: Pod) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv is not installed beside this Python")
    pod.prove()
    kept = {"UV_CACHE_DIR": str(pod.folder / "uv-cache"), "UV_OFFLINE": "1"}
    told = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(pod.folder / "loaded")}
    done = pod.started(str(uv), "pip", "list", "--python", str(pod.python), **kept, **told)
    assert done.returncode == 0, done.stderr[-500:]
    asked = [path.read_text() for path in pod.folder.glob("loaded.*") if "initialize program: " in path.read_text()]
    assert any("bin/python" in text for text in asked), "uv started no Python"
    assert not any(str(pod.compat) in text for text in asked)
