#!/usr/bin/env python3
"""plain_words.py finds each habit in comments, messages, scripts and texts, and passes plain words."""

import unittest
from pathlib import Path

import plain_words


def findings(name, *lines):
    count = plain_words.Count()
    count.read(Path(name), "\n".join(lines) + "\n")
    return count.findings


def count_of(name, *lines):
    count = plain_words.Count()
    count.read(Path(name), "\n".join(lines) + "\n")
    return count


class PlainWordsTest(unittest.TestCase):
    def test_plain_words_pass(self):
        self.assertEqual(findings("a.cpp", "// The caller releases the bucket.", 'fail("x is {}", x);'), [])

    def test_retired_words_are_found_in_comments_and_messages(self):
        for words in ["the ranks meet", "a yardstick", "beside it", "read anew", "let go of it", "lets go",
                      "nobody waits", "Whoever asks", "becomes whole", "parts become whole", "takes leave",
                      "sums land here", "a bucket of 0 is none"]:
            with self.subTest(words=words):
                self.assertEqual(len(findings("a.h", f"// {words}")), 1)
                self.assertEqual(len(findings("a.cpp", f'  check(ok, "{words}");')), 1)
                self.assertEqual(len(findings("a.cpp", f"int x;  // {words}")), 1)
                self.assertEqual(len(findings("a.py", f"# {words}")), 1)
                self.assertEqual(len(findings("a.md", words)), 1)

    def test_words_inside_other_words_pass(self):
        self.assertEqual(findings("a.cpp", "// island, landscape, meeter, none, is None"), [])

    def test_names_in_code_pass(self):
        self.assertEqual(findings("a.cpp", "void meet(int land);", '#include "a/meet.h"'), [])

    def test_a_finding_names_the_line_and_a_better_word(self):
        self.assertEqual(findings("a/b.h", "int x;", "// a yardstick"),
                         ["a/b.h:2: 'yardstick': write baseline"])

    def test_a_name_that_ctest_would_not_find_is_found(self):
        for name in ["one; two", "an array[3]", r"a \"word\""]:
            self.assertEqual(len(findings("a_test.cpp", "int x;", f'TEST_CASE("{name}") {{')), 1)
            self.assertEqual(len(findings("a_test.cpp", "TEST_CASE(", f'    "of {name}",', '"[cpu]") {')), 1)
        self.assertEqual(findings("a_test.cpp", 'TEST_CASE("one, two", "[cpu]") { check("a; b"); }'), [])

    def test_a_comment_that_begins_with_of_is_found(self):
        self.assertEqual(len(findings("a.h", "/// Of the last step.")), 1)
        self.assertEqual(findings("a.h", "// The loss", "// Of the last step."), [])  # goes on
        self.assertEqual(len(findings("a.h", "int x;", "  // Of x.", "int y;", "// Of y.")), 2)

    def test_the_first_sentence_of_a_header_is_short(self):
        words = " ".join(["word"] * 15)
        self.assertEqual(findings("a.h", f"// {words[:30]}", f"// {words[30:]}.", "// " + words), [])
        self.assertEqual(findings("a.h", f"// One. {words}", f"// {words}"), [])
        self.assertEqual(findings("a.h", "// Short", "//", f"// {words} {words}"), [])
        self.assertEqual(len(findings("a.h", f"// {words}", "// more.")), 1)
        self.assertEqual(findings("a.cpp", f"// {words}", "// more."), [])

    def test_question_words_are_counted_per_comment_line(self):
        count = count_of("a.h", "// What is kept, and whose it is.", "// Plain.", "int what;",
                         '  check(ok, "what");')
        self.assertEqual((count.comment_lines, count.question_words), (2, 2))
        self.assertEqual(count.rate(), 1000.0)

    def habits(self, name, *lines):
        return list(count_of(name, *lines).habit_findings())

    def test_a_habit_of_the_book_is_found_above_its_limit(self):
        for words in ["the sum of", "lies here", "far apart", "one at a\n  time", "a slot of its\nown", "those of h.1"]:
            with self.subTest(words=words):
                self.assertEqual(self.habits("docs/a.md", words), [])
                few = 0 if words == "the sum of" else 1
                self.assertEqual(len(self.habits("docs/a.md", *[words] * 3)), few)
        self.assertIn("write repeat the noun", self.habits("docs/a.md", *["x", "that of y"] * 3)[0])
        self.assertIn("docs/a.md:2, docs/a.md:4, docs/a.md:6", self.habits("docs/a.md", *["x", "that of y"] * 3)[0])

    def test_a_habit_is_counted_per_words_and_only_in_the_book(self):
        self.assertEqual(self.habits("docs/a.md", "word " * 40000, *["far apart"] * 4), [])
        self.assertEqual(len(self.habits("docs/a.md", "word " * 40000, *["far apart"] * 5)), 1)
        self.assertEqual(self.habits("README.md", *["far apart"] * 9), [])
        self.assertEqual(self.habits("docs/a.md", *["earlier-lies apartment analysis"] * 9), [])

    def test_texts_and_scripts_have_no_comment_lines(self):
        self.assertEqual(count_of("a.md", "what", "// what").comment_lines, 0)
        self.assertEqual(count_of("a.py", "# what").question_words, 0)


if __name__ == "__main__":
    unittest.main()
