#!/usr/bin/env python3
"""Draws a report in headless Chromium without a network: sections and charts, and pictures to look at.

  tessera report runs/a runs/b --out report.html
  tests/tools/report_check.py report.html PICTURES

By hand: CI has no browser. PICTURES gets files for 400 and 1,200 px, light and dark.
"""
import pathlib
import re
import subprocess
import sys

page, pictures = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
pictures.mkdir(parents=True, exist_ok=True)


def chromium(*options):
    return subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=4000",
         "--enable-logging=stderr", *options, page.as_uri()],
        capture_output=True, text=True, check=True)


for width in (400, 1200):
    for scheme in ("light", "dark"):
        dark = ["--force-dark-mode"] if scheme == "dark" else []
        chromium(f"--window-size={width},{7000 if width == 400 else 3200}", *dark,
                 f"--screenshot={pictures}/{width}-{scheme}.png")
drawn = chromium("--window-size=1200,3200", "--dump-dom")
errors = [line for line in drawn.stderr.splitlines() if "CONSOLE" in line]
body = drawn.stdout[drawn.stdout.index("<body>"):]
sections = re.findall(r"<h2>(.*?)</h2>", body)
charts = body.count("<svg")
assert not errors, errors
assert charts >= 6 and "NaN" not in re.sub(r"<script.*?</script>", "", body, flags=re.S), charts
print(f"{len(sections)} sections, {charts} charts: {', '.join(sections)}")
