#!/usr/bin/env python3
"""screenshots.py RUN...: takes the book's pictures of pages in headless Chromium: docs/figures/player.png and report.png.

  tools/site.sh && tests/tools/screenshots.py runs/a runs/b

The report is that of the runs. By hand, when a page has changed its looks: a picture depends on fonts.
"""
import pathlib
import subprocess
import sys
import tempfile

from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAYER = "strategy=fsdp&ranks=4"


def main():
    runs = [pathlib.Path(run) for run in sys.argv[1:]]
    if not runs:
        sys.exit("usage: screenshots.py RUN...")
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.html"
        subprocess.run([ROOT / "build/bin/tessera", "report", *(run.name for run in runs), "--out", report],
                       cwd=runs[0].parent, check=True)
        browser = Browser(folder)
        browser.open(report.as_uri(), 1200, "light")
        browser.picture(ROOT / "docs/figures/report.png", whole=False)
        browser.open((ROOT / "build/site/player.html").as_uri() + "?" + PLAYER, 1200, "light")
        browser.becomes_true("window.player && window.player.shown")
        browser.value("window.player.go(Math.floor(window.player.moments.length * 0.45))")
        browser.picture(ROOT / "docs/figures/player.png", whole=False)
        browser.close()


if __name__ == "__main__":
    main()
