#!/usr/bin/env python3
"""tools/slides.py computes reading times and writes a deck from the chapters; docs/teaching.md has answer keys."""
import html.parser
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import slides  # noqa: E402: the path comes first


class Deck(html.parser.HTMLParser):
    """The slides, each a form, its text and its images; and every address that the page asks for."""

    def __init__(self, text):
        super().__init__()
        self.slides, self.addresses, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        if tag == "section":
            self.slides.append([attributes["class"], "", 0])
        if tag == "img":
            self.slides[-1][2] += 1
        self.addresses += [attributes[name] for name in ("src", "href") if name in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if "section" in self.open:
            self.slides[-1][1] += data


class SyllabusTest(unittest.TestCase):
    def test_there_are_nine_lectures_with_each_assignment_once(self):
        self.assertEqual(len(slides.LECTURES), 9)
        numbers = [number for _, _, tasks in slides.LECTURES for number in tasks]
        self.assertEqual(sorted(numbers), [one.number for one in slides.assignments()])

    def test_chapters_come_once_and_in_the_order_of_the_book(self):
        contents = (ROOT / "docs/README.md").read_text(encoding="utf-8").partition("## Part I:")[2]
        chapters = [name for _, chapters, _ in slides.LECTURES for name in chapters]
        places = [contents.index(f"]({name}.md) |") for name in chapters]
        self.assertEqual(places, sorted(places))
        self.assertEqual(len(set(chapters)), len(chapters))

    def test_minutes_come_from_words_and_lines(self):
        self.assertEqual(slides.minutes_of("word " * 400), 2)
        self.assertEqual(slides.minutes_of("```sh\n" + "a line of code\n" * 24 + "```\n"), 2)
        self.assertEqual(slides.minutes_of("| a | b |\n" * 12 + "![a figure](figures/x.svg)\n"), 1)
        self.assertEqual(slides.minutes_of("[two words](a/page.md) " * 100), 1)
        self.assertEqual([slides.rounded(minutes) for minutes in (0.4, 7.4, 7.6)], [5, 5, 10])

    def test_solutions_exercises_and_marks_take_no_time(self):
        text = slides.chapter("zero")
        for word in ("<details>", "<!--", "## Exercises"):
            self.assertNotIn(word, text)
        self.assertIn("## Takeaways", text)


class DeckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_slides(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "tools/slides.py", *arguments], capture_output=True, text=True, check=False)

    def test_the_deck_has_questions_figures_takeaways_and_assignments(self):
        run = self.run_slides("deck", "--into", self.folder / "new/deck")
        self.assertEqual(run.returncode, 0, run.stderr)
        deck = Deck((self.folder / "new/deck/slides.html").read_text(encoding="utf-8"))
        self.assertEqual(deck.open, [])
        forms = [form for form, _, _ in deck.slides]
        chapters = [name for _, chapters, _ in slides.LECTURES for name in chapters]
        self.assertIn(f"{len(forms)} slides", run.stdout)
        self.assertEqual((forms.count("title"), forms.count("tasks")), (9, 9))
        self.assertEqual((forms.count("question"), forms.count("takeaways")), (len(chapters), len(chapters)))
        figures = sum(len(slides.FIGURE.findall(slides.chapter(name))) for name in chapters)
        self.assertEqual(sum(images for form, _, images in deck.slides if form == "figure"), figures)
        self.assertGreater(figures, 20)
        for form, text, _ in deck.slides:
            self.assertTrue(text.strip())
            self.assertNotRegex(text, r"\]\(|\*\*|`", f"Markdown on a slide of {form}")
        self.assertTrue(all(address.startswith("data:image/svg+xml;base64,") for address in deck.addresses))

    def test_a_bullet_keeps_its_code_and_loses_its_links(self):
        self.assertEqual(slides.inline("*FSDP* sends\n  `a * b * c` < **all** of [ZeRO](zero.md)'s"),
                         "<em>FSDP</em> sends <code>a * b * c</code> &lt; <b>all</b> of ZeRO's")
        self.assertEqual(slides.inline("2 * 3 * 4"), "2 * 3 * 4")

    def test_every_chapter_has_takeaways(self):
        for name in [name for _, chapters, _ in slides.LECTURES for name in chapters]:
            with self.subTest(chapter=name):
                self.assertGreaterEqual(len(slides.takeaways_of(name)), 2)

    def test_bad_input_gets_one_line_and_keeps_files(self):
        (self.folder / "file").write_text("mine")
        (self.folder / "slides.html").write_text("mine")
        for place, message in ((self.folder / "file", "is no folder"), (self.folder, "is there already")):
            run = self.run_slides("deck", "--into", place)
            self.assertEqual(run.returncode, 1)
            self.assertIn(message, run.stderr)
            self.assertEqual(run.stderr.count("\n"), 1)
        self.assertEqual((self.folder / "slides.html").read_text(), "mine")
        self.assertEqual(self.run_slides("deck").returncode, 2)


class KeysTest(unittest.TestCase):
    def test_the_line_of_the_page_writes_every_key(self):
        page = (ROOT / "docs/teaching.md").read_text(encoding="utf-8")
        line = re.search(r"^for n in .*$", page, re.M)[0]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["bash", "-ec", line.replace("keys/", f"{folder}/")], cwd=ROOT, check=True)
            written = sorted(int(path.parent.name) for path in pathlib.Path(folder).glob("*/assignment.json"))
        self.assertEqual(written, [one.number for one in slides.assignments()])


if __name__ == "__main__":
    unittest.main()
