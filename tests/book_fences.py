"""Checks that every fenced block of the book is run, compared with a source, or declared.

book.py checks the blocks that have a mark. Any other block declares in the word behind its ``` what it is:

  picture    a drawing, a layout, a formula, an order of events
  measured   output with the times of one machine, which the text names
  sh         commands for the reader: the paths and the presets in them exist
  yaml       keys of a configuration, which docs/configuration.md has
  python     a program for libraries that the tests do without
"""
import re

FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.S | re.M)
MARK_ABOVE = re.compile(r"<!-- (?:from|program|diff|sketch)\b[^\n]* -->\n\Z")
MARKED = re.compile(r"<!-- (?:printed by|lines of|counted by) .*?<!-- end -->", re.S)
PATH = re.compile(r"(?<![\w/.-])[\w.-]+(?:/[\w.-]+)+")
PRESET = re.compile(r"--preset[ =]([\w-]+)")


def blocks_of(text):
    """The word and the lines of every block that no mark covers."""
    marked = [mark.span() for mark in MARKED.finditer(text)]
    for fence in FENCE.finditer(text):
        covered = any(begin <= fence.start() < end for begin, end in marked)
        if not covered and not MARK_ABOVE.search(text[:fence.start()]):
            yield fence[2], fence[3]


def keys_of(yaml):
    """The keys of a configuration of sections and their entries: `section.key`."""
    section = ""
    for line in yaml.splitlines():
        match = re.match(r"( *)([\w.]+):", line)
        if match and not match[1]:
            section = match[2]
        elif match:
            yield f"{section}.{match[2]}"


def findings_in_commands(commands, tree):
    presets = tree.read("CMakePresets.json") or ""
    for preset in PRESET.findall(commands):
        if f'"name": "{preset}"' not in presets:
            yield f"there is no preset {preset}"
    for path in PATH.findall(commands):
        if tree.exists(path.split("/")[0]) and not path.startswith("build") and not tree.exists(path):
            yield f"there is no {path}"


def findings_in_blocks(text, tree):
    """The findings about the blocks of a page that have no mark."""
    for word, body in blocks_of(text):
        if word == "sh":
            yield from findings_in_commands(body, tree)
        elif word == "yaml":
            known = tree.read("docs/configuration.md") or ""
            yield from (f"there is no key {key}" for key in keys_of(body) if f"`{key}`" not in known)
        elif word not in ("picture", "measured", "python"):
            first = body.strip().splitlines()[0] if body.strip() else ""
            yield f"a block has no marker and does not declare what it is: {first}"
