"""Make the example report and the pictures of docs/bench-report.md; needs chromium, and pngquant to make them small.

Run as python tools/make_report_pictures.py. The pictures are of results/bench-h200-standard.json and of machines under
tests/machines; nothing is edited by hand.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from firstlight.cli.main import run as firstlight  # noqa: E402
from tests.report.handed import proof_text, write_journal  # noqa: E402
from tests.system.chromium import Chromium  # noqa: E402

IMAGES = ROOT / "docs" / "images"
EXAMPLE = ROOT / "examples" / "bench-report-h200.html"
LAPTOP, PHONE = (1120, 760), (390, 760)
# picture: (page, size, colours, element at its top, height)
PICTURES = (
    ("report-top.png", "bench", LAPTOP, "light", "header", 1330),
    ("report-cases-dark.png", "bench", LAPTOP, "dark", "#cases", 620),
    ("report-trace.png", "bench", LAPTOP, "light", "#trace", 1240),
    ("report-phone.png", "bench", PHONE, "light", "header", 760),
    ("doctor.png", "doctor", LAPTOP, "light", "header", 760),
    ("libs.png", "libs", LAPTOP, "light", "header", 680),
    ("doctor-phone-dark.png", "doctor", PHONE, "dark", "#out", 1100),
    ("handover-proved.png", "handover", LAPTOP, "dark", "#proved", 900),
    ("handover-phone.png", "handover", PHONE, "light", "#done", 900),
)


def main() -> None:
    """Write the example and every picture."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    IMAGES.mkdir(exist_ok=True)
    machines = ROOT / "tests" / "machines"
    with tempfile.TemporaryDirectory() as folder:
        names = ("doctor", "libs", "handover")
        pages = {"bench": EXAMPLE, **{name: Path(folder) / f"{name}.html" for name in names}}
        run = str(ROOT / "results" / "bench-h200-standard.json")
        firstlight(["bench", "report", run, "--out", str(EXAMPLE)])
        (Path(folder) / "verify.json").write_text(proof_text("h200-healthy"))
        journal = write_journal(Path(folder) / "journal", "h200-compat-stale")
        parts = ["--verify", f"{folder}/verify.json", "--journal", str(journal), "--bench", run, "--rate", "2.69"]
        before = ["--facts", str(machines / "h200-healthy"), "--before", str(machines / "h200-compat-stale")]
        firstlight(["handover", *before, *parts, "--out", str(pages["handover"])])
        firstlight(["doctor", "--facts", str(machines / "h100-driver-570"), "--html", str(pages["doctor"])])
        firstlight(["libs", "--facts", str(machines / "thor-missing-libraries"), "--html", str(pages["libs"])])
        with Chromium(Path(folder) / "profile") as browser:
            for name, page, size, scheme, top, height in PICTURES:
                browser.size(*size, dark=scheme)
                browser.open(pages[page])
                spot = browser.ask(f"document.querySelector({top!r}).getBoundingClientRect().top + scrollY")
                browser.picture(IMAGES / name, top=int(spot), height=height)
    if shutil.which("pngquant"):
        files = [str(IMAGES / picture[0]) for picture in PICTURES]
        subprocess.run(["pngquant", "--force", "--ext", ".png", "64", *files], check=True)


if __name__ == "__main__":
    main()
