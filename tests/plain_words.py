#!/usr/bin/env python3
"""plain_words.py ROOT [FOLDER...]: counts habits of language that make comments hard to read.

Comments are the lines of C++ and CUDA sources that begin with // or ///. Messages are their string
literals, test names among them. The limits:

  - "what", "whatever", "whoever" and "whose" stand at most 8 times per 1,000 comment lines. A
    sentence should have a named thing as its subject.
  - No comment begins with "Of ".
  - The first sentence of a header has at most 15 words.
  - The name of a test has no ";", "[" or backslash: CTest and Catch2 give them a meaning, and the test
    would not be found.
  - The RETIRED words stand nowhere: not in comments or messages, not in the book, not in scripts.
    The field has a word for each.
  - The HABITS of the book (docs/) have a limit each, per 10,000 words. Fewer words count as 10,000.

With folders (or files) only these are read. Prints one line per finding, then a line of counts, and
exits 1 if a limit is exceeded.
"""
import re
import subprocess
import sys
from pathlib import Path

LIMIT = 8.0  # per 1,000 comment lines
LONGEST_FIRST_SENTENCE = 15  # words

# A pattern, and the words to use in its place.
RETIRED = {
    r"whoever|somebody|nobody": "the caller, rank 0, the kernel: a named thing",
    r"yardsticks?": "baseline",
    r"beside": "next to",
    r"anew": "again",
    r"afar": "remote",
    r"lets? go( of)?|letting go( of)?": "release, reshard",
    r"(make|makes|made|making|become|becomes) (\w+ )?whole": "gather, unshard",
    r"(take|takes|took|taking) leave|farewells?": "finalize, leave",
    r"(meet|meets|meeting|meetings)": "barrier, rendezvous, match",
    r"(land|lands|landed|landing|landings)": "accumulate into, arrive in",
    r"is (?-i:none)": "say what is required instead",
}
QUESTION_WORDS = re.compile(r"\b(what|whatever|whoever|whose)\b", re.I)
RETIRED_WORDS = {re.compile(rf"\b({pattern})\b", re.I): use for pattern, use in RETIRED.items()}
ANY_RETIRED = re.compile(rf"\b({'|'.join(RETIRED)})\b", re.I)  # one look at a line instead of many

# Phrases of the book: how many per 10,000 words are too many, and the words to use in their place.
HABITS = {
    r"of (?:its|their|his|our|your|my) own": (1.5, "separate, or leave it out"),
    r"(?:that|those) of": (2.5, "repeat the noun, or write X's"),
    r"lies?": (1.5, "is, stands, comes"),
    r"apart": (1.0, "separate, or give the distance"),
    r"at a time": (1.5, "one by one, in steps of"),
}
HABIT_PATTERNS = {re.compile(r"(?<![\w-])" + pattern.replace(" ", r"\s+") + r"(?![\w-])", re.I): limit
                  for pattern, limit in HABITS.items()}

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake"}
TEXTS = {".md"}
COMMENT = re.compile(r"^\s*//")
TEST_NAME = re.compile(r'\bTEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
# These files show the words.
EXEMPT = {"tests/plain_words.py", "tests/plain_words_test.py", "CONTRIBUTING.md"}


def words_of(path, line):
    """The part of a line that is language: comments and literals of sources, all of a text."""
    if path.suffix in TEXTS:
        return line
    if path.suffix in SCRIPTS or path.name == "CMakeLists.txt":
        return line
    if COMMENT.match(line):
        return line
    if re.match(r"\s*#\s*include", line):
        return ""
    pieces = STRING.findall(line)
    without_strings = STRING.sub('""', line)
    if "//" in without_strings:
        pieces.append(without_strings.split("//", 1)[1])
    return " | ".join(pieces)


def first_sentence(text):
    """The first sentence of the comment at the top of a file."""
    comment = []
    for line in text.splitlines():
        if not line.startswith("//") or not line.lstrip("/ "):
            break
        comment.append(line.lstrip("/").strip())
    return re.split(r"(?<=[.!?:])\s", " ".join(comment), maxsplit=1)[0]


class Count:
    def __init__(self):
        self.comment_lines = 0
        self.question_words = 0
        self.book_words = 0
        self.habits = {pattern: [] for pattern in HABIT_PATTERNS}
        self.findings = []

    def rate(self):
        return 1000.0 * self.question_words / max(1, self.comment_lines)

    def habit_findings(self):
        """A finding for each habit of the book that exceeds its limit, with places that have it."""
        for pattern, (limit, use) in HABIT_PATTERNS.items():
            places = self.habits[pattern]
            rate = 10000.0 * len(places) / max(10000, self.book_words)
            if rate > limit:
                quote = places[0].split(": ", 1)[1]
                yield (f"docs: {rate:.1f} times '{quote}' or its like per 10,000 words; expected at most {limit}: "
                       f"write {use} ({', '.join(place.split(': ', 1)[0] for place in places)})")

    def read(self, path, text):
        """Counts one file. `path` is relative to the root."""
        if path.suffix in TEXTS and path.parts[0] == "docs":
            self.book_words += len(text.split())
            for pattern, places in self.habits.items():
                places += [f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}"
                           for match in pattern.finditer(text)]
        words = len(first_sentence(text).split())
        if path.suffix == ".h" and words > LONGEST_FIRST_SENTENCE:
            self.findings.append(f"{path}:1: the first sentence has {words} words; "
                                 f"expected at most {LONGEST_FIRST_SENTENCE}")
        for name in TEST_NAME.finditer(text) if path.suffix == ".cpp" else ():
            if re.search(r"[;\[\\]", name[1]):
                number = text.count("\n", 0, name.start()) + 1
                self.findings.append(f"{path}:{number}: the test's name has one of ; [ and backslash")
        previous_is_comment, is_source = False, path.suffix in SOURCES
        for number, line in enumerate(text.splitlines(), 1):
            is_comment = is_source and COMMENT.match(line) is not None
            if is_comment:
                self.comment_lines += 1
                self.question_words += len(QUESTION_WORDS.findall(line))
                if not previous_is_comment and re.match(r"^\s*///?\s*Of ", line):
                    self.findings.append(f"{path}:{number}: a comment begins with 'Of'")
            previous_is_comment = is_comment
            if not ANY_RETIRED.search(line):
                continue
            words = words_of(path, line)
            for pattern, use in RETIRED_WORDS.items():
                for match in pattern.finditer(words):
                    self.findings.append(f"{path}:{number}: '{match[0]}': write {use}")


def tracked_files(root, folders):
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders],
                           cwd=root, check=True, capture_output=True, text=True).stdout.split("\n")
    for name in sorted(set(names)):
        path = Path(name)
        known = path.suffix in SOURCES | SCRIPTS | TEXTS or path.name == "CMakeLists.txt"
        if name and known and name not in EXEMPT and (root / path).is_file():
            yield path


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: plain_words.py ROOT [FOLDER...]")
    root = Path(sys.argv[1])
    files = list(tracked_files(root, sys.argv[2:]))
    if not files:
        sys.exit(f"plain_words.py: there are no files to read below {root}")
    count = Count()
    for path in files:
        count.read(path, (root / path).read_text(encoding="utf-8"))
    count.findings += count.habit_findings()
    print(*count.findings, sep="\n", end="\n" if count.findings else "")
    print(f"plain words: {count.comment_lines} comment lines, {len(count.findings)} findings, "
          f"{count.rate():.1f} of what/whatever/whoever/whose per 1,000 (limit {LIMIT:.0f})")
    sys.exit(1 if count.findings or count.rate() > LIMIT else 0)


if __name__ == "__main__":
    main()
