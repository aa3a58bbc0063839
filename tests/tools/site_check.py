#!/usr/bin/env python3
"""Opens five pages of the book's site in headless Chromium without a network, and takes pictures to look at.

  tools/site.sh && tests/tools/site_check.py build/bin/tessera

Each page is opened at 400 and 1,200 px, light and dark; build/site-check gets its pictures. A page fails with an
error on its console, an image that does not load, or content wider than the window. The search must find
reduce_scatter, and the calculator must show the figures of `tessera plan`. CI runs it where Emscripten and Chromium
are installed (tools/setup.sh chromium). Skipped without Chromium or the site.
"""
import base64
import json
import math
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE, PICTURES = ROOT / "build/site", ROOT / "build/site-check"
# The contents, figures, code and tables, the form, a long list of words.
PAGES = ["index", "collectives", "runtime", "calculator", "glossary"]
HEIGHTS = {400: 800, 1200: 900}  # a window's height by its width
TALLEST = 16000  # Chromium draws no larger picture
FORM = {"model": "gpt2-medium", "ranks": 4, "strategy": "zero1", "rows": 2}  # other values than the form begins with
UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}


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
                sys.exit("site_check.py: Chromium has ended")
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
            sys.exit(f"site_check.py: {method}: {answer['error']}")
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
            sys.exit(f"site_check.py: {expression}: {answer['exceptionDetails']}")
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


def problems_of_page(browser, scheme):
    """What is wrong with any page: its colours, its images and its width."""
    colours = browser.value("document.body.dataset.mdColorScheme")
    other = [f"colours {colours}"] if colours != {"light": "default", "dark": "slate"}[scheme] else []
    missing = browser.value("[...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)")
    width, window = browser.value("[document.documentElement.scrollWidth, innerWidth]")
    wide = [f"{width} px wide in a window of {window}"] if width > window else []
    return other + [f"no image {url}" for url in missing] + wide + browser.errors()


def problems_of_search(browser):
    """A word must have results in chapters, where they name it."""
    browser.open((SITE / "index.html").as_uri(), 1200, "light")
    browser.value("document.querySelector('.md-search__input').focus()")
    browser.type("reduce_scatter")
    found = browser.becomes_true("document.querySelector('.md-search-result__item')", 30)
    browser.becomes_true("getComputedStyle(document.querySelector('.md-search__output')).opacity == 1")
    browser.picture(PICTURES / "search.png", whole=False)
    results = browser.value("""[...document.querySelectorAll('.md-search-result__item')].map(
                                 (item) => [item.querySelector('a').pathname, item.textContent])""")
    chapters = [place for place, text in results if "/code/" not in place and "reduce_scatter" in text]
    problems = [] if found and chapters else ["finds reduce_scatter in no chapter"]
    sources = [f"finds the source file {place}" for place, _ in results if "/code/" in place]
    return problems + sources + browser.errors()


def shown(text):
    """The number that a cell shows, and half of its last digit: "1.15 GiB", "18,402", "16.30"."""
    number, _, unit = text.replace(",", "").partition(" ")
    digits = len(number.partition(".")[2])
    return float(number) * UNITS[unit or "B"], 0.5 * 10**-digits * UNITS[unit or "B"]


def problems_of_calculator(browser, program):
    """Each row of the table must have the program's figures for the form's values."""
    browser.open((SITE / "calculator.html").as_uri(), 1200, "light")
    place = "document.getElementById('calculator')"
    browser.becomes_true(f"{place}.dataset.shown == 1")
    browser.value(f"""for (const [name, value] of Object.entries({json.dumps(FORM)}))
                        {place}.querySelector(`[name=${{name}}]`).value = value;
                      {place}.querySelector('form').dispatchEvent(new Event('change'))""")
    browser.becomes_true(f"{place}.dataset.shown == 2")
    rows = browser.value(f"""[...{place}.querySelectorAll('tbody tr')].map(
                               (row) => [...row.cells].map((cell) => cell.textContent))""")
    words = browser.value(f"planArguments(Object.fromEntries(new FormData({place}.querySelector('form'))))")
    browser.picture(PICTURES / "calculator-changed.png")
    plan = json.loads(subprocess.run([program, *words, "--json"], stdout=subprocess.PIPE, check=True).stdout)["plans"][0]
    planned = [plan] + [one for one in plan["strategies"] if one["strategy"] != plan["strategy"]]
    if [row[0].split()[0] for row in rows] != [one["strategy"] for one in planned]:
        return [f"{len(rows)} rows; expected one for each of {len(planned)} strategies"] + browser.errors()
    problems = []
    for one, row in zip(planned, rows):
        time_of = one["time"]
        expected = [one["peak"]["total"], one["bytes_sent"]["most"], 1e3 * time_of["step_seconds"],
                    1e3 * time_of["exposed_seconds"], time_of["tokens_per_second"]]
        for text, figure in zip(row[1:6], expected):
            number, half = shown(text)
            if not math.isclose(number, figure, abs_tol=1.001 * half, rel_tol=1e-9):
                problems.append(f"{row[0]}: {text}; tessera plan has {figure}")
    return problems + browser.errors()


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    if not shutil.which("chromium") or not SITE.exists():
        print("skipped: chromium is not on PATH" if SITE.exists() else f"skipped: {SITE} is missing; tools/site.sh builds it")
        return 0
    PICTURES.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        for name in PAGES:
            for width in HEIGHTS:
                for scheme in ("light", "dark"):
                    browser.open((SITE / f"{name}.html").as_uri(), width, scheme)
                    if name == "calculator":
                        browser.becomes_true("document.querySelector('#calculator svg')")
                    browser.picture(PICTURES / f"{name}-{width}-{scheme}.png")
                    problems += [f"{name}, {width} px, {scheme}: {one}" for one in problems_of_page(browser, scheme)]
        problems += [f"search: {one}" for one in problems_of_search(browser)]
        problems += [f"calculator: {one}" for one in problems_of_calculator(browser, program)]
        browser.close()
    print("\n".join([f"{len(list(PICTURES.glob('*.png')))} pictures in {PICTURES}", *problems]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
