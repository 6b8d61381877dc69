"""A real browser for the tests: headless Chromium, spoken to over its own debugging protocol."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PAPERS = {"A4": (8.27, 11.69), "letter": (8.5, 11.0)}  # inches
GENEROUS = 240  # seconds until what does not come counts as lost


def executable():
    """The browser's program; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One headless Chromium with a fresh profile."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [
                executable(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--hide-scrollbars", "--no-first-run", "--remote-debugging-port=0",
                f"--user-data-dir={self._profile.name}", "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        file = Path(self._profile.name) / "DevToolsActivePort"
        until = time.monotonic() + GENEROUS
        while not (file.exists() and file.read_text().count("\n")):
            assert time.monotonic() < until, "the browser did not start"
            time.sleep(0.05)
        self._port = int(file.read_text().splitlines()[0])

    def page(self):
        """The one page of the browser."""
        with urlopen(f"http://127.0.0.1:{self._port}/json/list") as answer:
            target = next(each for each in json.load(answer) if each["type"] == "page")
        return Page(target["webSocketDebuggerUrl"])

    def close(self):
        self._process.terminate()
        self._process.wait(GENEROUS)
        self._profile.cleanup()


class Page:
    """A page: open addresses, run scripts, press keys, take pictures; remembers errors and requests."""

    def __init__(self, address):
        self._open = ExitStack()
        patient = connect(address, max_size=None, open_timeout=GENEROUS, ping_interval=None)
        self._socket = self._open.enter_context(patient)
        self._number = 0
        self.errors = []
        self.requests = []
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def call(self, method, **parameters):
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv(timeout=GENEROUS))
            if told.get("id") == self._number:
                assert "error" not in told, f"{method}: {told['error']}"
                return told["result"]
            self._note(told)

    def _note(self, told):
        about = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            self.errors.append(about["exceptionDetails"].get("exception", {}).get("description", str(about)))
        elif told.get("method") == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        elif told.get("method") == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(str(about["args"]))
        elif told.get("method") == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def open(self, address, *, width=1200, height=900, dark=False, media=""):
        self.call("Page.navigate", url="about:blank")
        self.wait("document.readyState === 'complete' && location.href === 'about:blank'")
        self.errors.clear()  # of the page before
        self.requests.clear()
        self.look(width=width, height=height, dark=dark, media=media)
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def look(self, *, width=1200, height=900, dark=False, media=""):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def run(self, script):
        """The value of an expression; promises are awaited."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, condition):
        until = time.monotonic() + GENEROUS
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < until, f"not within {GENEROUS} s: {condition}"
            time.sleep(0.02)

    def computed(self):
        """Seconds of processor time that the page's main thread has used, whatever else the machine does."""
        told = self.call("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in told if each["name"] == "TaskDuration")

    def press(self, key, code=0):
        more = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def picture(self, path, *, whole=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def pdf(self, path, paper="A4"):
        """Print to a file; how many pages that took."""
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = PAPERS[paper]
        told = self.call("Page.printToPDF", printBackground=True, paperWidth=width, paperHeight=height)
        path.write_bytes(base64.b64decode(told["data"]))
        return len(re.findall(rb"/Type\s*/Page\b", path.read_bytes()))

    def names(self):
        """Role and accessible name of every node that can have the keyboard's focus."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if any(each["name"] == "focusable" and each["value"]["value"] for each in node.get("properties", []))
        ]

    def close(self):
        self._open.close()
