"""Hooks of MkDocs: GitHub's Markdown as the site shows it.

  - A link to a source file leads to a page of the site with that file, and one to a folder to its list.
    The search leaves these pages out: it finds the book's words in the book.
  - <details> become blocks that fold; lists are indented as MkDocs wants them. A solution with equations opens after the
    reader has entered a number (solutions.js).
  - Search works in pages that are opened as files, without a network.
  - The menu follows the parts of docs/README.md.
  - The page of the calculator gets its program, which tools/site/calculator.sh has built.
  - "The same in PyTorch" below a diff becomes a tab next to it, with the rung in Python.
  - player.html is the step player (player/). A comment such as <!-- player strategy=fsdp ranks=2 --> becomes
    the player in this state.
"""
import pathlib
import posixpath
import re
import sys
import textwrap

from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tools/site/player"))
from book import links_of, slug as heading_slug  # noqa: E402: the path comes first
from book_exercises import equations_in  # noqa: E402
import player_code  # noqa: E402

CALCULATOR = {"calculator.js": ROOT / "build/calculator/calculator.js", "shapes.js": ROOT / "tools/site/shapes.js",
              "calculator_page.js": ROOT / "tools/site/calculator/page.js"}
# player.js has these one after another, behind the rungs.
PLAYER = [ROOT / "tools/site" / name for name in ("shapes.js", *(f"player/{part}.js" for part in (
    "settings", "model", "moments", "draw", "panels", "page")))]
PLAYED = re.compile(r"^<!-- player ?(.*?) -->$", re.M)
TWIN = re.compile(r"^<!-- diff \S+ \S+ -->\n(```diff\n(?:(?!```).*\n)*```\n)\n\[The same in PyTorch\]\(([^)]+)\)\.\n", re.M)
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"
LINK = re.compile(r"\]\(([^)\s]+)\)")
DETAILS = re.compile(r"^( *)<details><summary>(.*?)</summary>\n(.*?)^ *</details>\n?", re.S | re.M)
TABLES = re.compile(r"^## (Part [^\n]*|Guides|Reference)\n(.*?)(?=^## |\Z)", re.S | re.M)
ENTRY = re.compile(r"^\| \[([^\]]*)\]\(([^)]*)\)", re.M)
ITEM = re.compile(r"^\d+\. ")
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".py": "python", ".sh": "bash", ".yaml": "yaml",
             ".toml": "toml", ".js": "javascript", ".html": "html", ".css": "css", ".json": "json", ".txt": "text",
             ".md": "markdown", ".cmake": "cmake"}


def slug(text, separator="-"):
    """GitHub's anchor of a heading."""
    return heading_slug(re.sub(r"<[^>]*>", "", text))


def code_page(path):
    """The page of the site that shows a file or a folder of the sources."""
    return f"code/{path}.md" if (ROOT / path).is_file() else posixpath.join("code", path, "index.md")


def linked_sources():
    """The files and folders outside docs/ that pages of the book link to."""
    found = set()
    for page in (ROOT / "docs").rglob("*.md"):
        for target in links_of(page.read_text(encoding="utf-8")):
            path = source_of(page.relative_to(ROOT).as_posix(), target)
            if path:
                found.add(path)
    return sorted(found)


def source_of(page, target):
    """The path from the root that a link of a page leads to, if it is outside docs/."""
    target = target.partition("#")[0]
    if not target or re.match(r"\w+:", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    return None if path.startswith("docs") else path


def text_of(path):
    """The text of the page that shows a source file or a folder."""
    if (ROOT / path).is_file():
        language = LANGUAGES.get(pathlib.Path(path).suffix, "text")
        return f"# {path}\n\n``````{language} linenums=\"1\"\n{(ROOT / path).read_text(encoding='utf-8', errors='replace')}\n``````\n"
    names = sorted(one.name + ("/" if one.is_dir() else "") for one in (ROOT / path).iterdir() if not one.name.startswith("."))
    return f"# {path}/\n\n" + "".join(f"- `{name}`\n" for name in names)


def on_files(files, config):
    for path in linked_sources():
        files.append(File.generated(config, code_page(path), content=NOT_SEARCHED + text_of(path),
                                    inclusion=InclusionLevel.NOT_IN_NAV))
    scripts = {name: ROOT / "tools/site" / name for name in ("site.css", "solutions.js", "worker.js")} | CALCULATOR
    scripts |= {name: ROOT / "tools/site/player" / name for name in ("player.html", "player.css")}
    for name, path in scripts.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    player = player_code.script() + "".join(path.read_text(encoding="utf-8") for path in PLAYER)
    files.append(File.generated(config, "player.js", content=player))
    return files


def on_config(config):
    contents = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    config.nav = [{"Contents": "README.md"}] + [
        {title: [{name: page} for name, page in ENTRY.findall(body)]} for title, body in TABLES.findall(contents)]
    return config


def on_post_page(output, page, config):
    """Takes our script in place of the one that Material's offline search fetches from the network, and adds the
    calculator's to its page, and those of solutions and of the player where there are some."""
    def path_to(name):
        return posixpath.relpath(name, posixpath.dirname(page.url) or ".")
    output = output.replace("https://unpkg.com/iframe-worker/shim", path_to("worker.js"))
    scripts = list(CALCULATOR) if page.file.src_uri == "calculator.md" else []
    scripts += ["solutions.js"] if 'class="predict"' in output else []
    scripts += ["player.js"] if 'class="player"' in output else []
    return output.replace("</body>", "".join(f'<script src="{path_to(name)}"></script>\n' for name in scripts) + "</body>")


def folded(match):
    """A <details> as MkDocs' block, one level deeper than the list item that it is in."""
    indent, summary, body = match.groups()
    outer = "    " if indent else ""
    lines = [line[len(indent):] for line in body.splitlines()]
    results = " ".join(right.replace(",", "") for _, right in equations_in(body))
    gate = f'\n{outer}<div class="predict" data-results="{results}"></div>\n' if results and summary == "Solution" else ""
    return gate + f"\n{outer}??? note \"{summary}\"\n\n" + "".join(f"{outer}    {line}".rstrip() + "\n" for line in lines) + "\n"


def with_deeper_items(text):
    """Continuation lines of numbered items get four spaces in place of three."""
    lines, inside = [], False
    for line in text.split("\n"):
        if ITEM.match(line):
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        lines.append(" " + line if inside and re.match(r"   \S", line) else line)
    return "\n".join(lines)


def in_tabs(diff, twin):
    """The difference of two rungs in C++ next to the rung in Python."""
    program = f"```python\n{(ROOT / twin).read_text(encoding='utf-8')}```\n"
    return "\n".join(f'=== "{name}"\n\n' + textwrap.indent(block, "    ")
                     for name, block in (("C++, what changes", diff), (f"PyTorch, {pathlib.Path(twin).name}", program)))


def player_in(state, page):
    """The player in a page: state is "strategy=fsdp ranks=2"."""
    player = posixpath.relpath("player.html", posixpath.dirname(page) or ".")
    return (f'<div class="player" data-start="{state}"></div>\n\n'
            f'<a href="{player}?{"&amp;".join(state.split())}">Open the player in a page</a>')


def on_page_markdown(markdown, page, config, files):
    name = page.file.src_uri
    if name.startswith("code/"):
        return markdown
    here = f"docs/{name}"

    def rewritten(match):
        path = source_of(here, match[1])
        if path is None or not (ROOT / path).exists():
            return match[0]
        return f"]({posixpath.relpath(code_page(path), posixpath.dirname(name) or '.')})"
    markdown = TWIN.sub(lambda match: in_tabs(match[1], source_of(here, match[2])), markdown)
    markdown = PLAYED.sub(lambda match: player_in(match[1], name), markdown)
    markdown = with_deeper_items(DETAILS.sub(folded, markdown))
    return LINK.sub(rewritten, markdown)
