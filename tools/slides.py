#!/usr/bin/env python3
"""slides.py: a course of nine lectures, made from the chapters of the book.

  tools/slides.py syllabus         the lectures with their chapters, minutes of reading and assignments
  tools/slides.py deck --into DIR  writes DIR/slides.html: questions, figures, takeaways, assignments

The deck is one file that needs no network. The text of a slide stands in the chapters: the question below a title, the
figures, and the bullets of "Takeaways".
"""
import argparse
import base64
import html
import pathlib
import re
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/course"))
from assignment import assignments  # noqa: E402: the path comes first

# The chapters of each lecture, and its assignments.
LECTURES = [
    ("One step on one rank", ["step", "autograd"], [17]),
    ("Ranks and collectives", ["eight_gpus", "collectives"], [1, 10]),
    ("Data parallelism", ["ladder", "data_parallel"], [2, 3]),
    ("ZeRO", ["zero"], [4, 5, 6]),
    ("FSDP", ["fsdp"], [7]),
    ("HSDP and experts", ["hsdp", "expert_parallelism"], [8, 9]),
    ("A step and its time", ["sharding_step", "time", "choosing"], [11, 12]),
    ("The cuts of the largest models", ["beyond", "tensor_parallelism", "context_parallelism", "pipeline_parallelism",
                                        "grid", "checkpoints"], [18, 19, 20, 21]),
    ("Kernels", ["kernels", "emulation", "kernels/norm_ladder", "kernels/matmul_ladder",
                 "kernels/softmax_ladder", "kernels/attention_ladder"], [13, 14, 15, 16]),
]

WORDS_PER_MINUTE = 200  # of prose
LINES_PER_MINUTE = 12  # of code, output and tables
ROUNDED_TO = 5  # minutes

DETAILS = re.compile(r"<details>.*?</details>", re.S)
COMMENT = re.compile(r"<!--.*?-->", re.S)
FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```$", re.S | re.M)
TABLE = re.compile(r"^ *\|.*$", re.M)
FIGURE = re.compile(r"!\[([^\]]*)\]\(([^)]+\.svg)\)")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
TITLE = re.compile(r"\A# ([^\n]+)\n\n\*([^*]+)\*\n")
TAKEAWAYS = re.compile(r"^## Takeaways\n(.*?)(?=^## |\Z)", re.S | re.M)


def chapter(name):
    """A chapter without its exercises, its solutions and its marks."""
    text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    return COMMENT.sub("", DETAILS.sub("", text.split("\n## Exercises\n")[0]))


def minutes_of(text):
    """The minutes to read a chapter, before they are rounded."""
    lines = sum(len(block.splitlines()) for block in FENCE.findall(text))
    prose = FENCE.sub("", text)
    lines += len(TABLE.findall(prose))
    words = LINK.sub(r"\1", FIGURE.sub("", TABLE.sub("", prose))).split()
    return len(words) / WORDS_PER_MINUTE + lines / LINES_PER_MINUTE


def rounded(minutes):
    return max(1, round(minutes / ROUNDED_TO)) * ROUNDED_TO


def syllabus():
    """One line for each lecture, and one for all."""
    work = {one.number: one.minutes for one in assignments()}
    width = max(len(title) for title, _, _ in LECTURES)
    lines, reading, writing = [], 0, 0
    for number, (title, chapters, tasks) in enumerate(LECTURES, 1):
        read = rounded(sum(minutes_of(chapter(name)) for name in chapters))
        write = sum(work[task] for task in tasks)
        reading, writing = reading + read, writing + write
        lines.append(f"{number}  {title:{width}}  read {read:3} min  write {write:3} min  "
                     f"assignments {', '.join(map(str, tasks))}\n")
        lines += [f"   {'':{width}}    docs/{name}.md\n" for name in chapters]
    lines.append(f"   {'all':{width}}  read {reading:3} min  write {writing:3} min\n")
    return "".join(lines)


def inline(text):
    """A piece of Markdown without blocks as HTML. Links become their text."""
    text = html.escape(" ".join(LINK.sub(r"\1", text).split()), quote=False)
    pieces = re.split(r"`([^`]*)`", text)  # code at the odd places
    for place, piece in enumerate(pieces):
        if place % 2:
            pieces[place] = f"<code>{piece}</code>"
        else:
            piece = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", piece)
            pieces[place] = re.sub(r"\*([^*\s][^*]*)\*", r"<em>\1</em>", piece)
    return "".join(pieces)


def picture(name, alt, path):
    """A figure as an image in the page: each keeps its names of patterns to itself."""
    file = (ROOT / f"docs/{name}.md").parent / path
    data = base64.b64encode(file.read_bytes()).decode("ascii")
    return f'<img alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{data}">'


def takeaways_of(name):
    section = TAKEAWAYS.search(chapter(name))
    return re.split(r"^- ", section[1], flags=re.M)[1:] if section else []


def slides():
    """The slides: each a word for its form, and HTML."""
    tasks = {one.number: one for one in assignments()}
    for number, (title, chapters, numbers) in enumerate(LECTURES, 1):
        yield "title", f"<p>Lecture {number}</p><h1>{inline(title)}</h1>"
        for name in chapters:
            text = chapter(name)
            heading, question = TITLE.match(text).groups()
            yield "question", f"<h2>{inline(heading)}</h2><p>{inline(question)}</p>"
            for alt, path in FIGURE.findall(text):
                yield "figure", f"<h2>{inline(heading)}</h2>{picture(name, alt, path)}<p>{inline(alt)}</p>"
            items = "".join(f"<li>{inline(item)}</li>" for item in takeaways_of(name))
            yield "takeaways", f"<h2>{inline(heading)}: takeaways</h2><ul>{items}</ul>"
        items = "".join(f"<li>{number}. {inline(tasks[number].title)}, {tasks[number].minutes} min</li>"
                        for number in numbers)
        yield "tasks", f"<h2>Assignments</h2><ul>{items}</ul>"


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tessera: nine lectures</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0; font: 3.2vmin/1.4 Helvetica, Arial, sans-serif; background: Canvas; color: CanvasText; }
section { box-sizing: border-box; min-height: 100vh; padding: 5vmin 8vmin 9vmin; display: flex; flex-direction: column;
  justify-content: center; break-after: page; }
.played section { display: none; }
.played section.shown { display: flex; }
h1 { font-size: 2.4em; margin: 0; } h2 { font-size: 1.5em; margin: 0 0 0.6em; }
.question p { font-size: 1.4em; font-style: italic; } .figure { align-items: center; text-align: center; }
.figure p { font-size: 0.7em; } li { margin: 0.5em 0; }
img { background: #fff; width: 100%; max-height: 60vh; object-fit: contain; }
nav { position: fixed; bottom: 0; right: 0; padding: 1vmin; font-size: max(2.4vmin, 16px); } nav button { font: inherit; }
@media print { nav { display: none; } .played section { display: flex; } }
</style></head><body>
SLIDES
<nav><button id="back" aria-label="previous slide">&larr;</button> <span id="place"></span>
<button id="on" aria-label="next slide">&rarr;</button></nav>
<script>
const all = document.querySelectorAll("section");
let now = 0;
function show(to) {
  now = Math.min(Math.max(to, 0), all.length - 1);
  all.forEach((slide, i) => slide.classList.toggle("shown", i === now));
  document.getElementById("place").textContent = `${now + 1} / ${all.length}`;
  history.replaceState(null, "", `#${now + 1}`);
}
const lecture = (from, step) => { // the nearest title
  for (let i = from + step; i >= 0 && i < all.length; i += step) if (all[i].className.includes("title")) return i;
  return from;
};
const keys = {ArrowRight: () => now + 1, PageDown: () => now + 1, " ": () => now + 1, ArrowLeft: () => now - 1,
  PageUp: () => now - 1, Home: () => 0, End: () => all.length - 1, ArrowDown: () => lecture(now, 1),
  ArrowUp: () => lecture(now, -1)};
addEventListener("keydown", event => {
  if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  show(keys[event.key]());
});
document.getElementById("back").onclick = () => show(now - 1);
document.getElementById("on").onclick = () => show(now + 1);
addEventListener("hashchange", () => show((parseInt(location.hash.slice(1)) || 1) - 1));
document.body.classList.add("played");
show((parseInt(location.hash.slice(1)) || 1) - 1);
</script></body></html>
"""


def write_deck(folder):
    if folder.exists() and not folder.is_dir():
        sys.exit(f"slides.py: {folder} is no folder; choose another one for --into")
    file = folder / "slides.html"
    if file.exists():
        sys.exit(f"slides.py: {file} is there already; remove it, or choose another folder for --into")
    sections = [f'<section class="{form}">{body}</section>' for form, body in slides()]
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(PAGE.replace("SLIDES", "\n".join(sections)), encoding="utf-8")
    print(f"{file}: {len(sections)} slides")


def main(arguments):
    parser = argparse.ArgumentParser(prog="slides.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("syllabus")
    commands.add_parser("deck").add_argument("--into", type=pathlib.Path, required=True, metavar="DIR")
    asked = parser.parse_args(arguments)
    if asked.command == "syllabus":
        print(syllabus(), end="")
    else:
        write_deck(asked.into)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    main(sys.argv[1:])
