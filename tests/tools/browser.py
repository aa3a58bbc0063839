"""Headless Chromium for the checks of the book's site."""
import base64
import json
import socket
import subprocess
import sys
import time

HEIGHTS = {400: 800, 1200: 900}  # a window's height by its width
TALLEST = 16000  # Chromium draws no larger picture


class Browser:
    """Headless Chromium with one page, asked by the DevTools protocol over a socket."""

    def __init__(self, profile):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(60)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
                   "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe"]
        # Chromium reads requests from file 3 and writes answers to file 4.
        script = f'exec chromium "$@" 3<&{theirs.fileno()} 4>&{theirs.fileno()}'
        self.process = subprocess.Popen(["bash", "-c", script, "bash", *options], pass_fds=[theirs.fileno()],
                                        stderr=subprocess.DEVNULL)
        theirs.close()
        self.received, self.asked, self.session, self.events = b"", 0, {}, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        # Every page is a first visit: the site remembers a reader's choice of colours.
        self.ask("Page.addScriptToEvaluateOnNewDocument", source="localStorage.clear()")

    def receive(self):
        while b"\0" not in self.received:
            more = self.socket.recv(1 << 20)
            if not more:
                sys.exit("browser.py: Chromium has ended")
            self.received += more
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def ask(self, method, **parameters):
        """The result of a method. Events that arrive meanwhile are kept."""
        self.asked += 1
        request = {"id": self.asked, "method": method, "params": parameters, **self.session}
        self.socket.sendall(json.dumps(request).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.asked:
            self.events.append(answer)
        if "error" in answer:
            sys.exit(f"browser.py: {method}: {answer['error']}")
        return answer["result"]

    def open(self, url, width, scheme):
        """Loads a page into a window of a width, for readers who prefer a colour scheme."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHTS[width], deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.ask("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive())

    def value(self, expression):
        """The value of JavaScript in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            sys.exit(f"browser.py: {expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def becomes_true(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def type(self, text):
        """Types into the control that has the focus."""
        self.ask("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key="Shift")

    def errors(self):
        """What the page has written to its console as an error."""
        found = []
        for event in self.events:
            method, told = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(told["exceptionDetails"].get("exception", {}).get("description", "an exception"))
            if method == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            if method == "Runtime.consoleAPICalled" and told["type"] == "error":
                found.append(" ".join(str(one.get("value", one.get("description"))) for one in told["args"]))
        return found

    def picture(self, path, whole=True):
        """Writes what the window shows, or the whole page."""
        options = {}
        if whole:
            height = min(TALLEST, self.value("document.documentElement.scrollHeight"))
            clip = {"x": 0, "y": 0, "width": self.value("innerWidth"), "height": height, "scale": 1}
            options = {"captureBeyondViewport": True, "clip": clip}
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", **options)["data"]))

    def close(self):
        self.ask("Browser.close")
        self.process.wait(60)
