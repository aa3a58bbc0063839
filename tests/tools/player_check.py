#!/usr/bin/env python3
"""Drives the step player in headless Chromium: every switch, every key, every event's line, and a removed wait of each strategy.

  tools/site.sh && tests/tools/player_check.py build/bin/tessera

Its page and the chapters that play a step are opened as files, without a network, narrow and wide, light and dark. Its
events must be those of `tessera plan` with the same arguments. Pictures go to build/site-check. Skipped without Chromium or
the site.
"""
import json
import pathlib
import shutil
import sys
import tempfile

from browser import HEIGHTS, Browser
from player_test import ARGUMENTS, CLOSE, PLANTED, traced
from site_check import PICTURES, SITE, problems_of_page

# The chapters that play a step.
CHAPTERS = ["collectives", "data_parallel", "zero", "fsdp", "sharding_step", "time", "choosing"]
PICTURED = [*CHAPTERS[1:6], "playing"]
EVENTS = "window.player.events.map(({ name, begin, end }) => ({ name, begin, end }))"


def waits_to_be_shown(browser, problems, name):
    if not browser.becomes_true("window.player && window.player.shown", 60):
        problems.append(f"{name}: the player shows nothing")
    told = browser.value("window.player?.problem")
    if told:
        problems.append(f"{name}: {told}")


def click(browser, expression):
    """A press of the mouse at the middle of an element, as a reader does it."""
    browser.value(f"{expression}.scrollIntoView({{ block: 'center' }})")
    x, y = browser.value(f"(() => {{ const box = {expression}.getBoundingClientRect(); "
                         "return [box.x + box.width / 2, box.y + box.height / 2]; })()")
    for kind in ("mousePressed", "mouseReleased"):
        browser.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def press(browser, key):
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key)


def change(browser, name, value):
    """Chooses a value of a switch, and waits for its step."""
    shown = browser.value("window.player.turn")
    browser.value(f"""(() => {{ const control = document.querySelector('.player [name={name}]');
      control.value = {json.dumps(value)}; control.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()""")
    return browser.becomes_true(f"window.player.shown > {shown}", 60)


def problems_of_pictures(browser):
    """The player's page, and chapters with their players, narrow and wide, light and dark."""
    problems = []
    for name in ["player", *PICTURED]:
        for width in HEIGHTS:
            for scheme in ("light", "dark"):
                browser.open((SITE / f"{name}.html").as_uri(), width, scheme)
                place = f"{name}, {width} px, {scheme}"
                browser.value("document.querySelector('.player').scrollIntoView()")
                waits_to_be_shown(browser, problems, place)
                drawn = browser.value("document.querySelectorAll('.player-rows rect').length")
                small = browser.value("""[...document.querySelectorAll('.player button')].filter((one) =>
                    one.offsetParent && one.getBoundingClientRect().width < 24).length""")
                wide = browser.value("document.documentElement.scrollWidth > innerWidth")
                problems += [f"{place}: {drawn} boxes in the picture"] if not drawn or drawn < 30 else []
                problems += [f"{place}: {small} buttons are too small for a finger"] if small else []
                problems += [f"{place}: wider than the window"] if wide else []
                browser.picture(PICTURES / f"player-in-{name}-{width}-{scheme}.png", whole=name == "player")
                problems += [f"{place}: {one}" for one in (
                    browser.errors() if name == "player" else problems_of_page(browser, scheme))]
    return problems


def problems_of_switches(browser, program, folder):
    """A change of each switch must bring the events that the program has for it, and other ones than before."""
    problems = []
    before = browser.value(EVENTS)
    for name in ARGUMENTS:
        first = browser.value(f"window.player.values[{json.dumps(name)}]")
        value = browser.value(f"[...document.querySelector('.player [name={name}]').options].map((one) => one.value).at(-1)")
        if value == first:
            value = browser.value(f"document.querySelector('.player [name={name}]').options[0].value")
        if not change(browser, name, value):
            problems.append(f"{name}={value}: no step")
            continue
        machine, trace = folder / "machine.json", folder / "trace.json"
        machine.write_text(browser.value("machineText(window.player.values)"))
        words = browser.value(f"planArguments(window.player.values, {json.dumps(str(machine))})")
        theirs, ours = traced(program, words, str(trace)), browser.value(EVENTS)
        if theirs is None:
            problems.append(f"{name}={value}: the program refuses {words}")
        elif [one["name"] for one in ours] != [one["name"] for one in theirs] or any(
                abs(one["begin"] - event["ts"]) > CLOSE for one, event in zip(ours, theirs)):
            problems.append(f"{name}={value}: other events than the program's")
        if ours == before and name != "checkpointing":
            problems.append(f"{name}={value}: the same events as before")
        change(browser, name, first)
        if browser.value(EVENTS) != before:
            problems.append(f"{name}={first}: other events than at first")
    return problems


def problems_of_removal(browser, strategy):
    """A wait that is removed by its triangle and the button is marked in the picture, in the list and in the state."""
    values, stream, awaited, text = PLANTED[strategy]
    for name, value in ({"strategy": strategy} | values).items():
        change(browser, name, value)
    waits = browser.value("window.player.waits.map(({ entry, stream, waitsFor }) => "
                          "({ entry, stream, for: nameOf(window.player.step, waitsFor) }))")
    awaited = awaited.replace("(reduce_scatter|copies of reduce)", "copies of reduce")
    entries = [one["entry"] for one in waits if one["stream"] == stream and one["for"] == awaited]
    if not entries:
        return [f"{strategy}: no wait for {awaited}"]
    click(browser, f"document.querySelector('.player-wait[data-entry=\"{entries[0]}\"]')")
    if browser.value("window.player.chosen") != entries[0]:
        browser.value(f"window.player.choose({entries[0]})")  # another triangle covers it
    click(browser, "document.querySelector('.player [name=remove]')")
    red = browser.value("window.player.red.map((one) => one.text)")
    told = browser.value("[...document.querySelectorAll('.player-bad')].map((one) => one.textContent)")
    now = browser.value("document.querySelector('.player-now').textContent")
    # The mark stands where the box of the event begins that came too early.
    places = browser.value("""(() => { const mark = document.querySelector('.player-wrong'), name = window.player.red[0]?.name;
        const box = [...document.querySelectorAll('.player-rows rect')].find((one) => one.textContent.startsWith(`${name}:`) &&
          Math.abs(one.getBoundingClientRect().x - mark?.getBoundingClientRect().x) < 2);
        return [Boolean(mark), Boolean(box)]; })()""")
    problems = []
    if red != [text] or told != [f"✗ {text}"]:
        problems.append(f"{strategy}: marked {red}, listed {told}; expected {text!r}")
    if places != [True, True]:
        problems.append(f"{strategy}: the mark and the box that it marks: {places}")
    if f"{' '.join(text.split(' ')[:2])} begins" not in now:
        problems.append(f"{strategy}: the present event is {now!r}")
    click(browser, "document.querySelector('.player [name=remove]')")
    if browser.value("[window.player.red.length, document.querySelectorAll('.player-wrong').length]") != [0, 0]:
        problems.append(f"{strategy}: marks stay when the wait is back")
    return problems


def problems_of_keys(browser):
    """The keys of docs/playing.md."""
    problems = []

    def state(expression):
        return browser.value(f"window.player.{expression}")
    press(browser, "Home")
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        press(browser, key)
        if state("index") != expected:
            problems.append(f"{key}: event {state('index')}; expected {expected}")
    press(browser, "End")
    if state("time") != state("end"):
        problems.append("End does not lead to the end")
    press(browser, "Home")
    press(browser, " ")
    if not browser.becomes_true("window.player.playing && window.player.time > 0", 10):
        problems.append("space does not play")
    press(browser, " ")
    stopped = state("time")
    if state("playing") or state("time") != stopped:
        problems.append("space does not pause")
    chosen = state("chosen")
    press(browser, "]")
    if state("chosen") == chosen:
        problems.append("] keeps the wait")
    press(browser, "[")
    press(browser, "x")
    if state("chosen") != chosen or not state(f"removed.has({chosen})"):
        problems.append("[ and x do not remove the first wait")
    press(browser, "r")
    if state("removed.size"):
        problems.append("r does not restore the wait")
    browser.value("""(() => { const slider = document.querySelector('.player input[type=range]');
        slider.value = 500; slider.dispatchEvent(new Event('input')); })()""")
    if abs(state("time") / state("end") - 0.5) > 1e-3:
        problems.append("the slider does not scrub")
    return problems


# By the first word of an event: what its line of a rung has. A gather's mark has another line where it is a prefetch.
LINES = {"forward": "backward(loss(", "backward": "backward(loss(", "optimizer": "optimizer_->step(", "open": "open_",
         "close": "close_values(", "gather": "gather(", "reduce": ("reduce(", "reduce_scatter("), "broadcast": "broadcast(",
         "all_gather": "all_gather(", "reduce_scatter": "reduce_scatter(", "all_reduce": "all_reduce(",
         "exposed": "wait_for_communication("}


def problems_of_lines(browser):
    """Every event but those of the norm and the loss has a line of the rung, and the panel shows it."""
    lines = browser.value("""(() => { const found = {}; for (let i = 0; i < window.player.moments.length - 1; ++i) {
        window.player.go(i); const { event } = window.player.moments[i];
        found[event.name] = document.querySelector('.player-line')?.textContent ?? ''; } return found; })()""")
    problems = []
    for name, line in lines.items():
        texts = LINES[name.split(" ")[0]] if name not in ("all_reduce loss", "all_reduce gradient norm") else ""
        whole = name.startswith("open gradients") and "reset_gradients(" in line  # a rung that keeps its gradients open
        if not whole and not any(text in line if text else not line for text in ([texts] if isinstance(texts, str) else texts)):
            problems.append(f"{name}: the line {line.strip()!r}")
    return problems


def problems_of_starts(browser):
    """A chapter's player begins with the values of its comment."""
    problems = []
    for name in CHAPTERS:
        browser.open((SITE / f"{name}.html").as_uri(), 1200, "light")
        start = browser.value("document.querySelector('.player')?.dataset.start ?? ''")
        begun = browser.value("window.player?.values ?? {}")
        if not start or any(begun.get(key) != value.replace("_", " ") for key, value in
                            (word.split("=") for word in start.split())):
            problems.append(f"{name}: a player that starts with {start!r}; it has {begun}")
    return problems


def problems_of_player(browser, program, folder):
    problems = problems_of_pictures(browser) + problems_of_starts(browser)
    browser.open((SITE / "player.html").as_uri(), 1200, "light")
    waits_to_be_shown(browser, problems, "player")
    problems += problems_of_keys(browser) + problems_of_lines(browser)
    change(browser, "prefetch", "none")
    problems += problems_of_lines(browser)
    change(browser, "prefetch", "both")
    problems += problems_of_switches(browser, program, folder)
    for strategy in PLANTED:
        browser.open(f"{(SITE / 'player.html').as_uri()}?strategy={strategy}", 1200, "light")
        waits_to_be_shown(browser, problems, strategy)
        problems += problems_of_removal(browser, strategy) + problems_of_lines(browser)
        press(browser, "x")
        browser.picture(PICTURES / f"player-removed-{strategy}.png")
    return problems + browser.errors()


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    if not shutil.which("chromium") or not SITE.exists():
        print("skipped: chromium is not on PATH" if SITE.exists() else f"skipped: {SITE} is missing; tools/site.sh builds it")
        return 0
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(f"{folder}/profile")
        problems = problems_of_player(browser, str(program), pathlib.Path(folder))
        browser.close()
    print(*problems, f"player: {len(problems)} problems", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
