#!/usr/bin/env python3
"""book.py accepts a page that agrees with the code and finds each kind of disagreement."""

import pathlib
import sys
import tempfile
import unittest

import book
import book_citations
import book_exercises
import book_notation
import book_readme
import book_track
import book_words

SOURCE = "int one();\n\nvoid two() {\n  first();\n  second();\n  third();\n}\n"
PROGRAM = "// About it.\n// More.\n\n#include <x>\nint main() {}\n"
TESTS = 'TEST_CASE("a name") {}\nTEST_CASE(\n    "a long " "name \\"quoted\\"", "[cpu]") {}\n'


class FakeTree:
    def __init__(self, output="a table\n"):
        self.files = {"a/b.cpp": SOURCE, "examples/hello.cpp": PROGRAM, "tests/t_test.cpp": TESTS,
                      "docs/page.md": "# A page, `code`\n\n## Second part\n"}
        self.output = output

    def read(self, path):
        return self.files.get(path)

    def exists(self, path):
        return path == "." or any(f"{file}/".startswith(f"{path.rstrip('/')}/") for file in self.files)

    def output_of(self, program):
        return self.output

    def has_test(self, name):
        return name in set(book.test_names(TESTS))


def check(text, tree=None):
    return list(book.findings_in(text, "docs/page.md", tree or FakeTree()))


def block(marker, *lines):
    return "Text.\n\n{}\n```cpp\n{}\n```\nMore.\n".format(marker, "\n".join(lines))


def quoted(*lines, path="a/b.cpp"):
    return block(f"<!-- from {path} -->", *lines)


class CountedTest(unittest.TestCase):
    PAGE = "<!-- counted by count_ladder --op norm -->\n```\n{}\n```\n<!-- end -->\n"

    def test_counts_are_compared_where_the_program_is(self):
        self.assertEqual(check(self.PAGE.format("another")), [])
        self.assertEqual(list(book.findings_in_counts(self.PAGE.format("a table"), FakeTree())), [])
        found = list(book.findings_in_counts(self.PAGE.format("another"), FakeTree()))
        self.assertIn("prints something else", found[0])

    def test_a_missing_program_is_found(self):
        found = list(book.findings_in_counts(self.PAGE.format("a table"), FakeTree(None)))
        self.assertIn("fails", found[0])

    def test_a_trace_is_compared_with_its_program(self):
        for output, said in [("events\n", None), ("others\n", "prints something else"), (None, "fails")]:
            tree = FakeTree(output)
            tree.files |= dict.fromkeys(book.TRACES, "events\n")
            found = list(book.findings_in_traces(tree))
            self.assertEqual(len(found), 0 if said is None else len(book.TRACES))
            self.assertTrue(said is None or said in found[0])


class DiffTest(unittest.TestCase):
    PAGE = "<!-- diff a/b.cpp a/c.cpp -->\n```diff\n{}```\n"
    LINES = "...\n   first();\n   second();\n-  third();\n+  fourth();\n }\n"

    def tree(self):
        tree = FakeTree()
        tree.files["a/c.cpp"] = "// Another comment.\n" + SOURCE.replace("third", "fourth")
        return tree

    def test_the_diff_of_two_files_passes(self):
        self.assertEqual(check(self.PAGE.format(self.LINES), self.tree()), [])

    def test_another_diff_and_a_missing_file_are_found(self):
        changed = self.PAGE.format(self.LINES.replace("fourth", "fifth"))
        self.assertIn("is another", check(changed, self.tree())[0])
        self.assertEqual(check(self.PAGE.format(self.LINES)), ["there is no a/b.cpp or no a/c.cpp"])

    def test_a_diff_is_written_in_place(self):
        page = "Text.\n" + self.PAGE.format("old\n") + "More.\n"
        self.assertEqual(book.with_diffs(page, self.tree()), "Text.\n" + self.PAGE.format(self.LINES) + "More.\n")


class FenceTest(unittest.TestCase):
    def test_lines_of_the_source_pass_at_any_indentation(self):
        self.assertEqual(check(quoted("void two() {", "  first();")), [])
        self.assertEqual(check(quoted("first();", "second();")), [])

    def test_an_omission_that_is_marked_passes(self):
        self.assertEqual(check(quoted("int one();", "// ...", "second();")), [])

    def test_an_omission_that_is_not_marked_is_found(self):
        self.assertEqual(check(quoted("first();", "third();")), ["not in a/b.cpp: first(); ..."])

    def test_another_order_is_found(self):
        self.assertEqual(len(check(quoted("third();", "// ...", "first();"))), 1)

    def test_a_changed_line_and_a_missing_file_are_found(self):
        self.assertIn("not in a/b.cpp", check(quoted("first(1);"))[0])
        self.assertEqual(check(quoted("first();", path="a/c.cpp")), ["there is no a/c.cpp"])

    def test_a_block_without_a_marker_is_found(self):
        self.assertIn("no marker", check(block("Text:", "first();"))[0])
        self.assertIn("no marker", check("```cpp\nfirst();\n```\n".join(["Text.\n\n", ""]))[0])
        self.assertIn("no marker", check("Text.\n\n```\nx\n```\n")[0])
        self.assertIn("no marker", check("1. Text.\n\n   ```\n   x\n   ```\n")[0])
        self.assertIn("no marker", check("<!-- printed by tables -->\na table\n<!-- end -->\n\n```\nx\n```\n")[0])

    def test_a_sketch_passes(self):
        self.assertEqual(check(block("<!-- sketch -->", "anything();")), [])

    def test_a_marker_without_its_block_is_found(self):
        self.assertEqual(len(check("<!-- from a/b.cpp -->\n\nText.\n")), 1)
        self.assertEqual(len(check("<!-- printed by tables -->\na table\n")), 1)
        # An empty line between them separates the two: both are found.
        self.assertEqual(len(check("<!-- from a/b.cpp -->\n\n```cpp\nfirst();\n```\n")), 2)

    def test_a_program_is_compared_as_a_whole_and_run(self):
        self.assertEqual(check(block("<!-- program hello -->", "#include <x>", "int main() {}")), [])
        self.assertIn("differs", check(block("<!-- program hello -->", "int main() {}"))[0])
        self.assertIn("fails", check(block("<!-- program hello -->", "#include <x>", "int main() {}"),
                                     FakeTree(output=None))[0])
        self.assertEqual(check(block("<!-- program bye -->", "int main() {}")),
                         ["there is no examples/bye.cpp"])

    def test_output_of_several_programs_is_compared_with_its_hashes(self):
        page = "<!-- printed by one, two -->\n```\n{0} loss\n{0} loss\n```\n<!-- end -->\n"
        tree = FakeTree(output="0123456789abcdef loss\n")
        self.assertEqual(check(page.format("0123456789abcdef"), tree), [])
        self.assertEqual(len(check(page.format("fedcba9876543210"), tree)), 1)

    def test_output_is_compared(self):
        page = "<!-- printed by tables -->\n\na table\n\n<!-- end -->\n"
        self.assertEqual(check(page), [])
        self.assertEqual(check(page.replace("a table", "    a table")), [])
        self.assertEqual(len(check(page, FakeTree(output="another\n"))), 1)
        self.assertEqual(len(check(page, FakeTree(output=None))), 1)


class DeclaredTest(unittest.TestCase):
    """Blocks that declare what they are."""

    def tree(self):
        tree = FakeTree()
        tree.files |= {"docs/configuration.md": "| `train.steps` | 1 |\n", "CMakePresets.json": '"name": "fast",'}
        return tree

    def block(self, word, *lines):
        return check("Text.\n\n```{}\n{}\n```\n".format(word, "\n".join(lines)), self.tree())

    def test_pictures_and_measurements_pass(self):
        self.assertEqual(self.block("picture", "a -> b"), [])
        self.assertEqual(self.block("measured", "1.3 ms"), [])
        self.assertIn("no marker", self.block("photograph", "a -> b")[0])

    def test_commands_name_paths_and_presets_that_exist(self):
        self.assertEqual(self.block("sh", "cmake --preset fast && cat a/b.cpp > build-x/y", "run /tmp/a/c.cpp"), [])
        self.assertEqual(self.block("sh", "cat a/c.cpp"), ["there is no a/c.cpp"])
        self.assertEqual(self.block("sh", "cmake --build --preset slow"), ["there is no preset slow"])

    def test_configurations_have_keys_that_exist(self):
        self.assertEqual(self.block("yaml", "# a.yaml", "train:", "  steps: 3"), [])
        self.assertEqual(self.block("yaml", "train:", "  stops: 3"), ["there is no key train.stops"])


class CommandTest(unittest.TestCase):
    def output_of(self, command):
        with tempfile.TemporaryDirectory() as root:
            script = pathlib.Path(root) / "tools/say.py"
            script.parent.mkdir()
            script.write_text(f"#!{sys.executable}\nimport pathlib, sys\npath = pathlib.Path(sys.argv[1])\n"
                              "print(path, path.parent.is_dir())\nsys.exit(len(sys.argv) > 2)\n")
            script.chmod(0o755)
            tree = book.Tree(pathlib.Path(root), pathlib.Path(root) / "bin")
            with tree.scratch:
                return tree.output_of(command)

    def test_a_script_runs_and_its_folder_has_a_fixed_name(self):
        self.assertEqual(self.output_of("tools/say.py SCRATCH/run"), "SCRATCH/run True\n")

    def test_a_failure_and_a_missing_program_are_noticed(self):
        self.assertIsNone(self.output_of("tools/say.py a b"))
        self.assertIsNone(self.output_of("tools/sing.py"))


class ReferenceTest(unittest.TestCase):
    def test_links_that_lead_somewhere_pass(self):
        self.assertEqual(check("[a](../a/b.cpp) [b](#second-part) [c](page.md#a-page-code) "
                               "[d](https://x.y/z) [e](..) [f](../a)"), [])

    def test_code_is_no_link_and_may_be_the_text_of_one(self):
        self.assertEqual(check("`x[i](y)`\n\n```picture\nx[i](y)\n```\n"), [])
        self.assertEqual(check("[`a/b.cpp`](../a/c.cpp)"), ["a link leads nowhere: ../a/c.cpp"])

    def test_links_that_lead_nowhere_are_found(self):
        self.assertEqual(check("[a](../a/c.cpp)"), ["a link leads nowhere: ../a/c.cpp"])
        self.assertEqual(check("[a](#third-part)"), ["there is no heading for the link #third-part"])

    def test_paths_in_backticks_exist(self):
        self.assertEqual(check("`a/b.cpp`, `a/`, `a/NAME.cpp` and, in another project, `csrc/x.cpp`"), [])
        self.assertEqual(check("`a/c.cpp`"), ["there is no a/c.cpp"])
        self.assertEqual(check("`a/c/`"), ["there is no a/c/"])

    def test_keys_exist(self):
        tree = FakeTree()
        tree.files["docs/configuration.md"] = "| `sharding.offload` | none |\n"
        self.assertEqual(check("`sharding.offload`, `sharding.offload: all`, `sharding.offload=all`", tree), [])
        self.assertEqual(check("`sharding.onload: all`", tree), ["there is no key sharding.onload"])

    def test_names_of_tests_exist(self):
        self.assertEqual(check('The test "a name"'), [])
        self.assertEqual(check('the test "a\nname"'), [])
        self.assertEqual(check('The test "b"'), ['there is no test "b"'])


class LinesTest(unittest.TestCase):
    PAGE = "<!-- lines of one 4 -->\n    {}\n    ...\n    {}\n<!-- end -->\n"

    def test_lines_in_their_order_pass(self):
        tree = FakeTree(output="first  1\nsecond 2\nthird 3\n")
        self.assertEqual(check(self.PAGE.format("first 1", "third 3"), tree), [])

    def test_another_order_another_line_and_a_failure_are_found(self):
        tree = FakeTree(output="first 1\nsecond 2\n")
        for lines in [("second 2", "first 1"), ("first 1", "second 3"), ("first 1", "first 1")]:
            self.assertEqual(check(self.PAGE.format(*lines), tree), ["one 4 does not print these lines"])
        self.assertEqual(check(self.PAGE.format("a", "b"), FakeTree(output=None)), ["the program one 4 fails"])

    def test_no_lines_at_all_are_found(self):
        self.assertEqual(len(check("<!-- lines of one -->\n...\n<!-- end -->\n")), 1)


class ExerciseTest(unittest.TestCase):
    def solution(self, text):
        return list(book_exercises.findings_in_solutions(f"1. How?\n<details><summary>Solution</summary>\n{text}\n</details>\n"))

    def test_right_equations_pass(self):
        for text in ["2 x 3 = 6", "so 2 x (4 - 1) x 4 x 198,464 = 4,763,136 bytes", "1 / 3 = 0.33", "2^30 / 2^20 = 1,024",
                     "(12 + 2 x 4) x\n3 = 60"]:
            self.assertEqual(self.solution(text), [], text)

    def test_a_wrong_equation_is_found(self):
        for text in ["2 x 3 = 7", "6 x 793,856 = 4,763,137", "1 / 3 = 0.34", "2 x 3 = 6 and 1 + 1 = 3"]:
            self.assertEqual(len(self.solution(text)), 1, text)

    def test_a_solution_that_nothing_checks_is_found(self):
        self.assertEqual(len(self.solution("Because it is so.")), 1)
        self.assertEqual(self.solution("<!-- in words -->\nBecause it is so."), [])

    def test_every_chapter_has_takeaways_and_two_exercises(self):
        solution = "<details>2 x 2 = 4</details>\n"
        output = "<!-- printed by a -->\nb\n<!-- end -->\n\n"
        head = f"# A\n\n*Why?*\n\nBefore this chapter: none.\n\n{output}"
        whole = f"{head}## Takeaways\n\n## Exercises\n\n{solution}{solution}"
        hidden = whole.replace(output, "").replace("<details>", f"<details>{output}", 1)
        for text, findings in [(whole, 0), (whole.replace(solution, "", 1), 1), (whole.replace("Takeaways", "Notes"), 1),
                               (whole.replace("Exercises", "Try it"), 1), (whole.replace(output, ""), 1), (hidden, 1)]:
            self.assertEqual(len(list(book_exercises.findings_in_chapters(lambda path: text, ["a.md"]))), findings)
        self.assertEqual(list(book_exercises.findings_in_chapters(lambda path: head, ["labs.md"])), [])

    def test_every_chapter_has_a_question_prerequisites_and_the_next_chapter(self):
        head = "# A\n\n*Why?*\n\nBefore this chapter: none.\n\n<!-- lines of a -->\n"
        pages = ["labs.md", "kernels/labs.md"]  # exempt from exercises by name, or not
        body = "## Takeaways\n\n## Exercises\n\n" + 2 * "<details>2 x 2 = 4</details>\n"
        whole = head + body + "Next: [b](kernels/labs.md)."
        for text, found in [(whole, None), (whole.replace("?", "."), "question"), (whole.replace("Before", "After"), "needs"),
                            (whole.replace("kernels/labs.md", "kernels/b.md"), "kernels/labs.md"),
                            (whole.replace("Next:", "Then"), "kernels/labs.md")]:
            texts = {"docs/labs.md": text, "docs/kernels/labs.md": head + body}
            findings = list(book_exercises.findings_in_chapters(texts.get, pages))
            self.assertEqual(len(findings), 0 if found is None else 1, findings)
            self.assertTrue(found is None or found in findings[0], findings)


class CitationTest(unittest.TestCase):
    ROW = "| **Li et al. 2020**: A title. VLDB | buckets | [A page](page.md) |\n"

    def findings(self, page, row=ROW):
        pages = {"docs/bibliography.md": row, "docs/page.md": page}
        return list(book_citations.findings_in_citations(pages.get, sorted(pages)))

    def test_citations_with_a_row_pass(self):
        for page in ["As (Li et al. 2020) say", "Li et al. (2020)", "(Li\net al. 2020), in November 2026, 2048 of them"]:
            self.assertEqual(self.findings(page), [], page)

    def test_a_citation_without_a_row_is_found(self):
        for page in ["(Li et al. 2020; Zhao et al. 2023)", "Li 2020, Zhao and Wu (2023)", "Li 2020. Zhao Team 2023"]:
            self.assertEqual(self.findings(page), ["docs/page.md: the bibliography lacks Zhao 2023"], page)

    def test_a_row_that_its_page_does_not_cite_is_found(self):
        self.assertEqual(len(self.findings("Li et al. 2021")), 2)
        self.assertEqual(self.findings("Li 2020", self.ROW.replace("[A page](page.md)", "none")),
                         ["docs/bibliography.md: no page cites Li 2020"])


class ReadmeTest(unittest.TestCase):
    GOOD = ("# Learn FSDP\n\n![A step](a.svg)\n\n<!-- printed by a -->\n    sent 30 held 12\n<!-- end -->\n\n"
            "GPT-2 124M on one H200 sends 30 / 12 = 2.5, [0.443 of the peak](docs/x.md).\n\n    a command of 7\n")

    def findings(self, text):
        return list(book_readme.findings_in_readme({"README.md": text, "docs/x.md": "| 0.443 | 29.8 |"}.get))

    def test_figures_of_linked_pages_and_right_equations_pass(self):
        self.assertEqual(self.findings(self.GOOD), [])

    def test_figures_without_a_source_are_found(self):
        for before, after in (("0.443", "0.444"), ("= 2.5", "= 2.4"), ("30 / 12 = 2.5", "30 / 15 = 2.0"),
                              ("(docs/x.md)", "(docs/y.md)"), ("sends", "sends 9")):
            self.assertEqual(len(self.findings(self.GOOD.replace(before, after))), 1, after)

    def test_a_long_page_and_a_late_picture_are_found(self):
        self.assertIn("words", self.findings(self.GOOD + "word " * 600)[0])
        self.assertIn("picture", self.findings(self.GOOD.replace("![", "word " * 100 + "!["))[0])
        self.assertIn("FSDP", self.findings(self.GOOD.replace("FSDP", "sharding"))[0])


class WordsTest(unittest.TestCase):
    CONTENTS = "# Book\n\n## Part I: one\n\n[A](a.md)\n\n## Part II: two\n\n[B](b.md)\n\n## Reference\n\n[C](c.md)\n"
    GLOSSARY = ("# Glossary\n\n### all-gather\nA call. Chapter: [B](b.md).\n\n### block\nA part. Chapter: [B](b.md).\n"
                "<!-- also an everyday word -->\n\n### FSDP\nA way.\nChapter: [B](b.md).\n\n### loss\nA number.\n")
    B = "# B\n\nAn *all-gather* and *FSDP*.\n"

    def findings(self, a, b=B, glossary=GLOSSARY):
        pages = {"docs/README.md": self.CONTENTS, "docs/glossary.md": glossary, "docs/a.md": a, "docs/b.md": b}
        return list(book_words.findings_in_words(pages.get))

    def test_words_that_are_explained_pass(self):
        for a in ["# A\n\nText, a loss and a block.\n", "An [all-gather](glossary.md#all-gather), then an all_gather.",
                  "[All-gathers](b.md#x)", "`all_gather`", "```\nall_gather\n```\n", "## An all-gather\n\nText.",
                  "# A\n\n*What is an all-gather?*\n\nText.", "[x](../all_gather.cpp)", "the fsdp"]:
            self.assertEqual(self.findings(a), [], a)

    def test_a_word_before_its_chapter_is_found(self):
        for a in ["An all-gather.", "Two all_gathers.", "all\ngather", "FSDP", "[x](y.md) all-gather",
                  "[all-gather](https://x.y)", "An all-gather, an [all-gather](glossary.md#all-gather)"]:
            self.assertEqual(len(self.findings(a)), 1, a)

    def test_a_chapter_without_the_word_it_should_explain_is_found(self):
        self.assertEqual(len(self.findings("", b="# B\n\nAn all-gather and *FSDP*.\n")), 1)

    def test_a_chapter_outside_the_parts_and_a_wrong_order_are_found(self):
        self.assertIn("in no part", self.findings("", glossary="### x\nA. Chapter: [C](c.md).\n")[0])
        self.assertIn("alphabetical", self.findings("", glossary="### b\nA.\n\n### a\nB.\n")[0])


class NotationTest(unittest.TestCase):
    CONTENTS = ("# Book\n\n## Part I: one\n\n[A](a.md)\n\n## Part II: two\n\n[B](b.md), [C](k/c.md)\n\n## Notation\n\n"
                "Words.\n\n**Part II**\n\n| letter | meaning |\n|---|---|\n| N | *ranks* of a job |\n| K, n | *micro-batches*; "
                "*tokens* |\n| Ck | *channels* |\n\n**[One](a.md) page**\n\n| letter | meaning |\n|---|---|\n| N | *rows* |\n")

    def findings(self, b, a="", contents=CONTENTS):
        pages = {"docs/README.md": contents, "docs/a.md": a, "docs/b.md": b, "docs/k/c.md": ""}
        return list(book_notation.findings_in_notation(pages.get))

    def test_letters_of_the_table_pass(self):
        for b in ["N ranks", "n tokens, K\nmicro-batches and N ranks", "N is the number of ranks", "Let N be the ranks.",
                  "Ck channels", "16 / N tokens", "2 N tokens", "`X ranks`", "```\nX ranks + X\n```", "Part III", "C++",
                  "    2 (N - 1) / N", "Use N parts.", "the rows of N are the columns", "`rank` N has 4", "a.K tokens"]:
            self.assertEqual(self.findings(b), [], b)

    def test_a_second_meaning_is_found(self):
        for b in ["N tokens", "of K ranks each", "where N is the number of tokens", "Let K be the number of ranks",
                  "N is the width of a row", "n channels", "Ck tokens", "X ranks", "N\ntokens"]:
            self.assertEqual(len(self.findings(b)), 1, b)
        self.assertEqual(self.findings("N tokens"),
                         ["docs/b.md: 'N tokens': the notation of Part II has n for tokens"])

    def test_a_letter_of_a_formula_that_is_not_in_the_table_is_found(self):
        for b in ["    2 (N - 1) X", "and X (2 + N)", "It takes X / 2.", "That is 4 X bytes"]:
            self.assertEqual(self.findings(b), ["docs/b.md: the letter X is not in the notation of Part II"], b)

    def test_a_table_is_for_its_chapters_only(self):
        self.assertEqual(self.findings("", a="N rows"), [])
        self.assertEqual(self.findings("", a="K ranks and n rows"), ["docs/a.md: 'n rows': the notation of One page has N for rows"])

    def test_a_table_without_chapters_or_with_a_letter_twice_and_no_table_are_found(self):
        self.assertIn("names no chapter", self.findings("", contents=self.CONTENTS.replace("**Part II**", "**Part IV**"))[0])
        self.assertIn("a letter twice", self.findings("", contents=self.CONTENTS.replace("| K, n |", "| N, n |"))[0])
        self.assertIn("no table", self.findings("", contents="## Part II: two\n\n[B](b.md)\n")[0])



class TrackTest(unittest.TestCase):
    def findings(self, pages):
        contents = "| reader | way |\n|---|---|\n| in a hurry: track 1 | [one](one.md), [two](two.md) |\n"
        return list(book_track.findings_in_track(({"docs/README.md": contents} | pages).get))

    def test_a_track_is_short_and_has_figures(self):
        self.assertEqual(self.findings({"docs/one.md": "![a](a.svg) word", "docs/two.md": "![b](b.svg)"}), [])

    def test_a_chapter_without_a_figure_is_found(self):
        self.assertEqual(self.findings({"docs/one.md": "![a](a.svg)", "docs/two.md": "none"}),
                         ["docs/two.md: is in track 1 and has no figure"])

    def test_too_many_words_are_found_and_code_is_no_word(self):
        long = "![a](a.svg) " + "word " * 9000
        code = "\n```\n" + "word " * 9000 + "\n```\n"
        self.assertEqual(self.findings({"docs/one.md": long, "docs/two.md": "![b](b.svg)" + code}), [])
        self.assertEqual(self.findings({"docs/one.md": long, "docs/two.md": long}),
                         ["docs/README.md: track 1 has 18002 words; at most 18000"])

    def test_a_missing_row_is_found(self):
        self.assertEqual(list(book_track.findings_in_track({"docs/README.md": "nothing"}.get)),
                         ["docs/README.md: has no row for track 1"])


if __name__ == "__main__":
    unittest.main()
