"""A headless Chromium, driven over a pipe in its own protocol: no driver and no further package is needed."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60
# The child reads commands from its descriptor 3 and answers on 4.
LAUNCH = """import os, sys
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]  # 3 and 4 are taken, so that no copy gets them
reading, writing = (os.dup(int(number)) for number in sys.argv[1:3])
os.dup2(reading, 3), os.dup2(writing, 4)
os.execvp(sys.argv[3], sys.argv[3:])"""


def find():
    """Return the path of a browser; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in a browser of its own. `errors` gathers what its console complains of, and what no script caught."""

    def __init__(self, profile):
        """Start the browser; `profile` is an empty folder that it may write to."""
        from_us, self._out = os.pipe()
        self._in, to_us = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        command = [find(), *flags, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(from_us), str(to_us), *command],
            pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(from_us), os.close(to_us)
        self._rest, self._count, self._events, self.errors, self._session = b"", 0, [], [], None
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def close(self):
        """End the browser."""
        with contextlib.suppress(Exception):
            self._call("Browser.close")
        os.close(self._out), os.close(self._in)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def open(self, path, width=1280, height=900, dark=False, phone=False):
        """Show a file in a window of so many pixels, and wait until its scripts have run."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self._call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.media(dark=dark)
        self._events.clear()
        self._call("Page.navigate", url=path.absolute().as_uri())
        self._wait("Page.loadEventFired")
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")

    def media(self, dark=False, kind=""):
        """Say what the page is shown on."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def run(self, script):
        """Return the value of an expression in the page; a promise is waited for."""
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("exception", answer["exceptionDetails"]))
        return answer["result"].get("value")

    def drag(self, x, y, to_x, to_y):
        """Press the mouse at one place of the window and let go at another."""
        steps = [("mouseMoved", x, y, 0), ("mousePressed", x, y, 1)]
        steps += [("mouseMoved", x + (to_x - x) * i / 5, y + (to_y - y) * i / 5, 1) for i in range(1, 6)]
        steps += [("mouseReleased", to_x, to_y, 0)]
        for kind, at_x, at_y, buttons in steps:
            self._call(
                "Input.dispatchMouseEvent", type=kind, x=at_x, y=at_y, buttons=buttons,
                button="none" if kind == "mouseMoved" and not buttons else "left", clickCount=1,
            )  # fmt: skip

    def move(self, x, y):
        """Move the mouse."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        """Press a key; Enter also types the return that activates a button."""
        text = {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path, whole=False):
        """Write what the window shows, or the whole page, as a PNG."""
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self):
        """Return the page as printed."""
        return base64.b64decode(self._call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])

    def requests(self):
        """Return every address that was asked for since the page was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def _call(self, method, **params):
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session is not None and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        number = self._count
        while (answer := self._next()).get("id") != number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _wait(self, method):
        seen = 0
        while True:
            if any(event.get("method") == method for event in self._events[seen:]):
                return
            seen = len(self._events)
            self._next()

    def _next(self):
        """Return the next message; events are kept as well."""
        until = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(until - time.monotonic(), 0))
            part = os.read(self._in, 2**20) if ready else b""
            if not part:
                raise TimeoutError("the browser does not answer")
            self._rest += part
        one, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(one)
        if "method" in message:
            self._events.append(message)
            self._note(message["method"], message["params"])
        return message

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "?"))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(arg.get("value")) for arg in params["args"]))
