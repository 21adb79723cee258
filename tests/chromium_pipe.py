"""A headless Chromium that is spoken to through two pipes: no driver, no port, nothing to download."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60.0  # seconds for one answer, on a busy machine
# Chromium wants its pipes to be 3 and 4.
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def browser():
    """The path of an installed Chromium, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Page:
    """One tab. Everything it says on its own, such as requests and errors, is kept in `events`."""

    def __init__(self, write, read):
        self.write, self.read, self.buffer = write, read, b""
        self.number, self.session, self.events = 0, None, []

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], PATIENCE)
            assert ready, "Chromium does not answer"
            piece = os.read(self.read, 1 << 16)
            assert piece, "Chromium has ended"
            self.buffer += piece
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def attach(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    def until(self, condition):
        end = time.monotonic() + PATIENCE
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.05)

    def evaluate(self, code):
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=KEYS[key])

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def said(self, method):
        return [event["params"] for event in self.events if event.get("method") == method]

    def requests(self):
        return [event["request"]["url"] for event in self.said("Network.requestWillBeSent")]

    def complaints(self):
        """Errors and warnings in the console, of any kind."""
        logged = [event["entry"]["text"] for event in self.said("Log.entryAdded")]
        printed = [str(event["args"]) for event in self.said("Runtime.consoleAPICalled")]
        thrown = [str(event["exceptionDetails"]) for event in self.said("Runtime.exceptionThrown")]
        return logged + printed + thrown


KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, " ": 32, "+": 187}


@contextmanager
def chromium(folder, size=(1200, 800)):
    """A tab in a fresh profile under `folder`; the browser ends with the block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    options = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"]
    options += ["--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={folder}"]
    options += [f"--window-size={size[0]},{size[1]}", "--hide-scrollbars"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # it refuses to run as root otherwise
    command = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), browser(), *options]
    process = subprocess.Popen(
        command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        page = Page(ours_out, ours_in)
        page.attach()
        yield page
    finally:
        os.close(ours_out)  # its end of input tells it to leave
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(ours_in)
