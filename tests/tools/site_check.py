#!/usr/bin/env python3
"""Opens the book's site in headless Chromium without a network, and takes pictures of some pages to look at.

  tools/site.sh && tests/tools/site_check.py build/bin/tessera

Five pages are opened at 400 and 1,200 px, light and dark, and all others at 400 px; build/site-check gets pictures. A page fails with an
error on its console, an image that does not load, or content wider than the window. The search must find
reduce_scatter, a solution must open after a number, a tab must show a rung in PyTorch, and the calculator must show the
figures of `tessera plan`.
player_check.py drives the step player. CI runs it where Emscripten and Chromium are installed (tools/setup.sh
chromium). Skipped without Chromium or the site.
"""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

from browser import HEIGHTS, Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE, PICTURES = ROOT / "build/site", ROOT / "build/site-check"
# The contents, figures, code and tables, the form, a long list of words.
PAGES = ["index", "collectives", "runtime", "calculator", "glossary"]
FORM = {"model": "gpt2-medium", "ranks": 4, "strategy": "zero1", "rows": 2}  # other values than the form begins with
UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}


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


def problems_of_solutions(browser):
    """A solution is hidden until a number is entered, and says whether the number is right."""
    browser.open((SITE / "eight_gpus.html").as_uri(), 1200, "light")
    def state():
        return browser.value("""(() => { const place = document.querySelector('.predict'), solution = document.querySelector('.predict ~ details');
            return [solution.checkVisibility(), solution.open, place.querySelector('span').textContent]; })()""")
    def enter(number):
        browser.value(f"""(() => {{ const place = document.querySelector('.predict');
            place.querySelector('input').value = {json.dumps(number)};
            place.querySelector('form').requestSubmit(); }})()""")
    problems = [] if browser.value("document.querySelectorAll('.predict').length") == 3 else ["eight_gpus has not three gates"]
    for number, expected in [(None, [False, False, ""]), ("many", [False, False, "Enter a number."]),
                             ("12", [True, True, "The solution has another number."]), ("134.62", [True, True, "That is one of its results."])]:
        if number:
            enter(number)
        if state() != expected:
            problems.append(f"after {number}: {state()}")
    browser.picture(PICTURES / "solutions.png")
    return problems + browser.errors()


def problems_of_tabs(browser):
    """A rung's diff in C++ has the rung in PyTorch next to it, which a click shows."""
    browser.open((SITE / "fsdp.html").as_uri(), 1200, "light")
    def shown():
        return browser.value("""[...document.querySelectorAll('.tabbed-block')].map(
                                  (block) => block.checkVisibility() && block.textContent.slice(0, 2000))""")
    before = shown()
    browser.value("document.querySelectorAll('.tabbed-labels label')[1].click()")
    after = shown()
    right = (len(before) == 2 and "own_slice" in str(before[0]) and not before[1]
             and not after[0] and "class Training(ladder.Rung)" in str(after[1]))
    return ([] if right else [f"before a click {before}, after it {after}"]) + browser.errors()


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
        others = {path.relative_to(SITE).with_suffix("").as_posix() for path in SITE.rglob("*.html")} - {*PAGES, "404", "player"}
        for name in sorted(one for one in others if not one.startswith("code/")):
            browser.open((SITE / f"{name}.html").as_uri(), 400, "light")
            problems += [f"{name}: {one}" for one in problems_of_page(browser, "light")]
        problems += [f"search: {one}" for one in problems_of_search(browser)]
        problems += [f"solutions: {one}" for one in problems_of_solutions(browser)]
        problems += [f"tabs: {one}" for one in problems_of_tabs(browser)]
        problems += [f"calculator: {one}" for one in problems_of_calculator(browser, program)]
        browser.close()
    print("\n".join([f"{len(list(PICTURES.glob('*.png')))} pictures in {PICTURES}", *problems]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
