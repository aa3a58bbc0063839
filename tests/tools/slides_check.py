#!/usr/bin/env python3
"""Drives the deck of slides in headless Chromium: its keys and buttons, and whether each slide fits the window.

  tests/tools/slides_check.py

The deck is opened as a file, without a network. Pictures go to build/site-check. Skipped without Chromium.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build/site-check"
PLACE = "document.getElementById('place').textContent"
PRESS = "dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', bubbles: true, cancelable: true}}))"


def problems_of_keys(browser, slides):
    """Each key in turn, and the slide that it leads to."""
    titles = browser.value("[...all].flatMap((slide, i) => slide.className.includes('title') ? [i + 1] : [])")
    steps = [("Home", 1), ("ArrowRight", 2), (" ", 3), ("PageDown", 4), ("ArrowLeft", 3), ("PageUp", 2), ("ArrowDown", titles[1]),
             ("ArrowDown", titles[2]), ("ArrowUp", titles[1]), ("End", slides), ("ArrowRight", slides), ("ArrowDown", slides),
             ("ArrowUp", titles[-1]), ("Home", 1), ("ArrowLeft", 1), ("x", 1)]
    for key, expected in steps:
        browser.value(PRESS.format(key))
        if browser.value(PLACE) != f"{expected} / {slides}":
            yield f"key '{key}' leads to slide {browser.value(PLACE)}, not to {expected}"
    for button, expected in (("on", 2), ("on", 3), ("back", 2)):
        browser.value(f"document.getElementById('{button}').click()")
        if browser.value(PLACE) != f"{expected} / {slides}":
            yield f"button {button} leads to slide {browser.value(PLACE)}, not to {expected}"
    if browser.value("location.hash") != "#2":
        yield "the address does not name the slide"


def problems_of_slides(browser, slides):
    """One slide is shown, with a figure that is drawn, and it fits the window."""
    for number in range(1, slides + 1):
        browser.value(f"show({number - 1})")
        if browser.value("[...all].filter(slide => getComputedStyle(slide).display !== 'none').length") != 1:
            yield f"slide {number}: another one is shown, too"
        if browser.value("document.documentElement.scrollHeight > innerHeight || "
                         "document.documentElement.scrollWidth > innerWidth"):
            yield f"slide {number}: does not fit the window: {browser.value('all[now].textContent.slice(0, 50)')}"
        if not browser.becomes_true("[...all[now].querySelectorAll('img')].every(image => image.complete && image.naturalWidth)", 10):
            yield f"slide {number}: its figure is not drawn"


def main():
    if not shutil.which("chromium"):
        print("slides_check.py: skipped: no chromium on PATH")
        return 0
    PICTURES.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        subprocess.run([ROOT / "tools/slides.py", "deck", "--into", scratch], stdout=subprocess.DEVNULL, check=True)
        browser = Browser(f"{scratch}/profile")
        for width in (1200, 400):
            for scheme in ("light", "dark"):
                browser.open(f"file://{scratch}/slides.html", width, scheme)
                slides = browser.value("all.length")
                problems += [f"{width} px, {scheme}: {problem}"
                             for problem in [*problems_of_keys(browser, slides), *problems_of_slides(browser, slides), *browser.errors()]]
                form = "figure" if width == 1200 else "takeaways"
                browser.value(f"show([...all].findIndex(slide => slide.className.includes('{form}')))")
                browser.picture(PICTURES / f"slides-{width}-{scheme}.png", whole=False)
        browser.close()
    for problem in problems:
        print(problem)
    print(f"slides: {slides} slides, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
