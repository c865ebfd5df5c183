# SPDX-License-Identifier: Apache-2.0
"""Drives Debian's headless Chromium by its DevTools protocol over two pipes: no package beside Python's own is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser():
    """Its path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a browser of its own; `with Browser() as page:`."""

    def __init__(self, width=1280, height=800, is_dark=False, flags=()):
        self.folder = tempfile.mkdtemp(prefix="paoding_browser_")
        to_read, to_write = os.pipe(), os.pipe()
        command = [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars=0", f"--user-data-dir={self.folder}",
                   *flags, "about:blank"]

        def give_pipes():  # the protocol has it that they are 3 and 4
            os.dup2(to_read[0], 100)
            os.dup2(to_write[1], 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        self.process = subprocess.Popen(command, preexec_fn=give_pipes, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read[0])
        os.close(to_write[1])
        self.to, self.of = to_read[1], to_write[0]
        self.number, self.waiting, self.events = 0, b"", []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.resize(width, height)
        self.set_dark(is_dark)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.to, self.of):
            os.close(pipe)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.waiting:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.of], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.of, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self.waiting += piece
        message, self.waiting = self.waiting.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, seconds=120, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            answer = self._message(seconds)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def run(self, script, seconds=120):
        """The value of an expression in the page; promises are waited for."""
        answer = self.call("Runtime.evaluate", seconds, expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]) + " in " + script)
        return answer["result"].get("value")

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)

    def set_dark(self, is_dark):
        value = "dark" if is_dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def before_scripts(self, script):
        """Runs before those of every page that is opened from now on."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, path, view=""):
        """Opens a page, and waits until it says that it is there. Returns after how many ms it says so."""
        self.events.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + ("#" + view if view else ""))
        assert os.path.exists(path), path
        end = time.monotonic() + 120
        while time.monotonic() < end:
            ready = self.run("document.documentElement && document.documentElement.dataset.ready || "
                             "document.getElementById('problem') && !document.getElementById('problem').hidden && '-1'")
            if ready:
                self.settle()
                return int(ready)
            time.sleep(0.05)
        raise TimeoutError(f"{path} is not ready")

    def settle(self):
        """Waits until the page is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def problems(self):
        """Uncaught exceptions, lines of the log, and requests to anywhere."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event.get("method") == "Log.entryAdded":
                found.append(parameters["entry"]["text"])
            elif event.get("method") == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith(("file:", "about:", "blob:")):
                    found.append("request to " + url)
        return found

    def press(self, key, modifiers=0):
        """A key, as `KeyboardEvent.key` has it; modifiers: 1 alt, 2 ctrl, 4 meta, 8 shift."""
        text = key if len(key) == 1 and not modifiers & 7 else {"Enter": "\r"}.get(key, "")
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        code = codes.get(key, ord(key.upper()) if len(key) == 1 else 0)
        down = {"type": "keyDown" if text else "rawKeyDown", "key": key, "text": text, "modifiers": modifiers,
                "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers, windowsVirtualKeyCode=code)
        self.settle()

    def type(self, text):
        for letter in text:
            self.press(letter)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type="mouse" + kind, x=x, y=y, **more)

    def click(self, x, y, count=1):
        self.mouse("Moved", x, y)
        for n in range(1, count + 1):
            self.mouse("Pressed", x, y, button="left", clickCount=n)
            self.mouse("Released", x, y, button="left", clickCount=n)
        self.settle()

    def drag(self, x0, y0, x1, y1):
        self.mouse("Moved", x0, y0)
        self.mouse("Pressed", x0, y0, button="left", clickCount=1)
        for n in range(1, 6):
            self.mouse("Moved", x0 + (x1 - x0) * n / 5, y0 + (y1 - y0) * n / 5, button="left", buttons=1)
        self.mouse("Released", x1, y1, button="left", clickCount=1)
        self.settle()

    def wheel(self, x, y, by, modifiers=0):
        self.mouse("Wheel", x, y, deltaX=0, deltaY=by, modifiers=modifiers)
        self.settle()

    def cpu_seconds(self):
        """CPU time of all processes of the browser, whatever else the machine does."""
        parents, used = {}, {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(pid)] = int(fields[1])
            used[int(pid)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def is_ours(pid):
            while pid in parents and pid != self.process.pid:
                pid = parents[pid]
            return pid == self.process.pid

        return sum(seconds for pid, seconds in used.items() if is_ours(pid))

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
