"""A headless Chromium behind its debugging pipe: JSON messages, each ended by a zero byte."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""
PATIENCE_S = 30.0


class Chromium:
    """One browser with one page; `said` holds console messages, errors and refused requests."""

    def __init__(self, profile: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def plug_in() -> None:
            first, second = os.dup(to_read), os.dup(to_write)  # 3 and 4 may be the pipes themselves
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [BINARY, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=plug_in, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._count = 0
        self._session = ""
        self._loaded = False
        self.said: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self._loaded = False
        self.said.clear()
        self.call("Page.navigate", url=path.as_uri())
        until = time.monotonic() + PATIENCE_S
        while not self._loaded:
            assert time.monotonic() < until, f"{path} did not load"
            self._next()

    def size(self, width: int, height: int, *, dark: str = "light", media: str = "") -> None:
        """Phone, laptop or paper; `dark` is light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": dark}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """One key down and up: 'Tab', 'ArrowRight'."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_CODES[key])

    def picture(self, path: Path, *, top: int = 0, height: int = 0) -> None:
        """A screenshot of the window, or of a stretch of the page."""
        width = int(self.ask("innerWidth"))
        clip = {"x": 0, "y": top, "width": width, "height": height or int(self.ask("innerHeight")), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def edge_of(self, box: str, side: str) -> bytes:
        """A picture of the outermost pixels of an element, inside its border."""
        at = self.ask(f"((a) => [a.left, a.right, a.top + scrollY, a.height])({box}.getBoundingClientRect())")
        left = at[0] + 2 if side == "left" else at[1] - 8
        clip = {"x": left, "y": at[2] + 2, "width": 6, "height": max(4, at[3] - 4), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        answer = self.call(
            "Page.printToPDF", printBackground=True, preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69
        )
        return base64.b64decode(answer["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 20)
            assert part, "chromium went away"
            self._buffer += part
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.consoleAPICalled":
            self.said.append(f"console: {params['args']}")
        elif method == "Runtime.exceptionThrown":
            self.said.append(f"exception: {params['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.said.append(f"log: {params['entry'].get('text')}")
        elif method == "Page.javascriptDialogOpening":
            self.said.append(f"dialog: {params['message']}")
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "about:")):
            self.said.append(f"request: {params['request']['url']}")


_CODES = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}
