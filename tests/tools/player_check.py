#!/usr/bin/env python3
"""Drives the step player in headless Chromium: every switch, every key, and a removed wait of each strategy.

  tools/site.sh && tests/tools/player_check.py build/bin/tessera

The page is opened as a file, without a network. Its step must be that of `tessera plan` with the same arguments.
Pictures go to build/site-check. Skipped without Chromium or the site.
"""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE, PICTURES = ROOT / "build/site", ROOT / "build/site-check"
STRATEGIES = ["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"]
SLOW, FAST = {"bandwidth": "5", "latency": "20"}, {"bandwidth": "2000", "latency": "0"}
# Each strategy: switches, the wait to remove, and the race that becomes red, with the memory where it happens.
REMOVED = {
    "ddp": (FAST, "all_reduce h.1 waits for computation", "gradients of h.1 are sent before they are complete", "gradients of h.1"),
    "zero1": (FAST, "reduce_scatter h.1 waits for computation", "gradients of h.1 are sent before they are complete", "gradients of h.1"),
    "zero2": (SLOW, "backward of h.0 waits for its gradient slot",
              "backward writes gradients of h.0 over those of h.2, which are being sent", "gradient slot 1"),
    "zero3": (SLOW, "computation waits for the values of h.1", "computation reads values of h.1 that have not arrived yet", "value slot 0"),
    "fsdp": (SLOW, "computation waits for the values of h.1", "computation reads values of h.1 that have not arrived yet", "value slot 0"),
    "hsdp": (SLOW, "computation waits for the values of h.1", "computation reads values of h.1 that have not arrived yet", "value slot 0"),
}


def set_to(browser, values):
    browser.value(f"window.player.set({json.dumps(values)})")


def problems_of_step(browser, program, scratch):
    """The step in the page must be the program's, to twelve digits."""
    words = browser.value("argumentsOf(window.player.values)")
    machine, trace = scratch / "machine.json", scratch / "trace.json"
    machine.write_text(json.dumps(browser.value("machineOf(window.player.values)")))
    words = [{"/machine.json": str(machine), "/trace.json": str(trace)}.get(word, word) for word in words]
    subprocess.run([program, *words], stdout=subprocess.DEVNULL, check=True)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] != "M"]
    shown = browser.value("window.player.events.map(({ name, begin, end }) => [name, 1e6 * begin, 1e6 * end])")
    theirs = [(event["name"], event["ts"], event["ts"] + event.get("dur", 0.0)) for event in events]
    same = len(shown) == len(theirs) and all(
        ours[0] == other[0] and math.isclose(ours[1], other[1], rel_tol=1e-9, abs_tol=1e-6) and
        math.isclose(ours[2], other[2], rel_tol=1e-9, abs_tol=1e-6) for ours, other in zip(shown, theirs))
    return [] if same else [f"another step than `{' '.join(words)}`"]


def problems_of_switches(browser, program, scratch):
    """Each value of each switch gives a step."""
    for name, choices in browser.value("kSwitches.map(([name, , choices]) => [name, choices])"):
        first = browser.value(f"window.player.values.{name}")
        for choice in map(str, choices):
            set_to(browser, {"strategy": "fsdp"} | {name: choice})
            state = browser.value("[window.player.problem, window.player.end, window.player.races.length]")
            if state[0] or not state[1] > 0 or state[2]:
                yield f"{name} = {choice}: {state}"
            elif name == "strategy" or choice == str(choices[-1]):
                yield from (f"{name} = {choice}: {one}" for one in problems_of_step(browser, program, scratch))
        set_to(browser, {"strategy": "fsdp"} | {name: first})


def problems_of_waits(browser):
    """A removed wait is marked red at its place, and restored."""
    for strategy, (values, wait, race, piece) in REMOVED.items():
        set_to(browser, {"strategy": strategy, "ranks": "4", "bandwidth": "50", "latency": "5"} | values)
        if browser.value("document.querySelectorAll('.stage .wrong').length"):
            yield f"{strategy}: red with all waits"
        found = browser.value(f"""(() => {{
            const row = [...document.querySelectorAll('.waits li')].find((one) => one.firstChild.textContent === {json.dumps(wait)});
            row?.querySelector('button').click();
            return Boolean(row);
        }})()""")
        if not found:
            yield f"{strategy}: no wait '{wait}'"
            continue
        state = browser.value("""[window.player.races[0]?.wrong, window.player.races[0]?.text, window.player.races[0]?.piece,
                                  document.querySelectorAll('.stage .wrong').length, document.querySelector('.race.wrong')?.textContent,
                                  window.player.time === window.player.races[0]?.at]""")
        if state[:3] != [True, race, piece] or state[3] < 1 or race not in (state[4] or "") or not state[5]:
            yield f"{strategy}: {state}"
        browser.picture(PICTURES / f"player-removed-{strategy}.png")
        browser.value("window.player.restore()")
        if browser.value("window.player.races.length"):
            yield f"{strategy}: red after the wait is restored"


def press(browser, key, code=None):
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, text=" " if key == " " and kind == "keyDown" else "")


def problems_of_keys(browser):
    set_to(browser, {"strategy": "fsdp", "ranks": "4"} | SLOW)
    browser.value("document.activeElement.blur()")
    for key, expected in [("ArrowRight", "window.player.time > 0"), ("End", "window.player.time === window.player.end"),
                          ("ArrowLeft", "window.player.time < window.player.end"), ("Home", "window.player.time === 0"),
                          ("w", "window.player.removed.size === 1"), ("r", "window.player.removed.size === 0"),
                          (" ", "window.player.playing"), (" ", "!window.player.playing")]:
        press(browser, key)
        if not browser.value(expected):
            yield f"key '{key}': not {expected}"
    set_to(browser, {"strategy": "fsdp"})
    browser.value("window.player.play()")
    if not browser.becomes_true("window.player.time > 0", 20):
        yield "the time does not pass"
    browser.value("window.player.pause()")


def problems_of_code(browser):
    """The line of the rung stands out at an event that it causes."""
    for strategy in STRATEGIES:
        set_to(browser, {"strategy": strategy})
        seen = browser.value("""[...new Set(window.player.moments.map((time) => {
            window.player.seek(time);
            return document.querySelector('.code .here')?.textContent.trim();
        }))].filter(Boolean)""")
        if len(seen) < 3:
            yield f"{strategy}: shows only the lines {seen}"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    if not shutil.which("chromium") or not SITE.exists():
        print("skipped: chromium is not on PATH" if SITE.exists() else f"skipped: {SITE} is missing; tools/site.sh builds it")
        return 0
    PICTURES.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(f"{folder}/profile")
        for width in (400, 1200):
            for scheme in ("light", "dark"):
                browser.open((SITE / "player.html").as_uri(), width, scheme)
                if not browser.becomes_true("window.player?.end > 0"):
                    problems.append(f"{width} px, {scheme}: no step")
                browser.value("window.player.seek(window.player.end / 3)")
                browser.picture(PICTURES / f"player-{width}-{scheme}.png")
                wide = browser.value("document.documentElement.scrollWidth > innerWidth")
                problems += [f"{width} px, {scheme}: wider than the window"] if wide else []
        problems += problems_of_switches(browser, program, pathlib.Path(folder))
        problems += problems_of_waits(browser)
        problems += problems_of_keys(browser)
        problems += problems_of_code(browser)
        problems += browser.errors()
        browser.close()
    print(*problems, f"player: {len(problems)} problems", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
