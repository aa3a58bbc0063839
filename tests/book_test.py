#!/usr/bin/env python3
"""The book check passes what is quoted rightly and finds what is not."""

import unittest

import book

SOURCE = "int one();\n\nvoid two() {\n  first();\n  second();\n  third();\n}\n"


def check(chapter, output="a table\n"):
    files = {"a/b.cpp": SOURCE}
    return list(book.findings_in(chapter, files.get, lambda program: output))


def quoted(*lines, path="a/b.cpp"):
    return "Text.\n\n<!-- from {} -->\n```cpp\n{}\n```\nMore.\n".format(path, "\n".join(lines))


class BookTest(unittest.TestCase):
    def test_lines_of_the_source_pass_at_any_indentation(self):
        self.assertEqual(check(quoted("void two() {", "  first();")), [])
        self.assertEqual(check(quoted("first();", "second();")), [])

    def test_lines_may_be_left_out_where_it_is_said(self):
        self.assertEqual(check(quoted("int one();", "// ...", "second();")), [])

    def test_lines_left_out_silently_are_found(self):
        self.assertEqual(len(check(quoted("first();", "third();"))), 1)

    def test_lines_in_another_order_are_found(self):
        self.assertEqual(len(check(quoted("third();", "// ...", "first();"))), 1)

    def test_changed_lines_and_lost_files_are_found(self):
        self.assertIn("a/b.cpp does not say", check(quoted("first(1);"))[0])
        self.assertEqual(check(quoted("first();", path="a/c.cpp")), ["there is no a/c.cpp"])

    def test_output_is_compared(self):
        chapter = "<!-- printed by tables -->\n\na table\n\n<!-- end -->\n"
        self.assertEqual(check(chapter), [])
        self.assertEqual(len(check(chapter, output="another\n")), 1)

    def test_a_marker_without_its_block_is_found(self):
        self.assertEqual(len(check("<!-- from a/b.cpp -->\n\n```cpp\nfirst();\n```\n")), 1)
        self.assertEqual(len(check("<!-- printed by tables -->\na table\n")), 1)


if __name__ == "__main__":
    unittest.main()
