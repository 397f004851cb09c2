"""Runs in a container, by the Python of the image, as the main program of an archive of wheels: firstlight from there.

What was unpacked is gone with the container, and with this program. Every Python 3 can read it, so that an old one says
what it lacks.
"""

import io
import runpy
import shutil
import sys
import tempfile
import zipfile

_LEAST = (3, 10)


def main(archive: str) -> int:
    """The exit code is that of firstlight; 2 where the Python of the image is too old for it."""
    if sys.version_info < _LEAST:
        sys.stderr.write("firstlight needs Python %d.%d or newer" % _LEAST)  # noqa: UP031 read by every Python 3
        sys.stderr.write("; the python3 of the image is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
        return 2
    folder = tempfile.mkdtemp(prefix="firstlight-")
    try:
        with zipfile.ZipFile(archive) as wheels:
            for name in wheels.namelist():
                if name.endswith(".whl"):
                    with zipfile.ZipFile(io.BytesIO(wheels.read(name))) as wheel:
                        wheel.extractall(folder)
        sys.path[0] = folder
        sys.argv[0] = "firstlight"
        runpy.run_module("firstlight", run_name="__main__", alter_sys=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[0]))
