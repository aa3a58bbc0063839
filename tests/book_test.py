#!/usr/bin/env python3
"""book.py accepts a page that agrees with the code and finds each kind of disagreement."""

import unittest

import book

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

    def test_a_block_without_a_marker_is_found_in_cpp_only(self):
        self.assertIn("no marker", check(block("Text:", "first();"))[0])
        self.assertIn("no marker", check("```cpp\nfirst();\n```\n".join(["Text.\n\n", ""]))[0])
        self.assertEqual(check("Text.\n\n```yaml\na: 1\n```\n"), [])

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

    def test_several_programs_and_hashes_of_any_bits_pass(self):
        page = "<!-- printed by one, two -->\n```\n{0} loss\n{0} loss\n```\n<!-- end -->\n"
        tree = FakeTree(output="0123456789abcdef loss\n")
        self.assertEqual(check(page.format("fedcba9876543210"), tree), [])
        self.assertEqual(len(check(page.format("fedc"), tree)), 1)

    def test_output_is_compared(self):
        page = "<!-- printed by tables -->\n\na table\n\n<!-- end -->\n"
        self.assertEqual(check(page), [])
        self.assertEqual(check(page.replace("a table", "    a table")), [])
        self.assertEqual(len(check(page, FakeTree(output="another\n"))), 1)
        self.assertEqual(len(check(page, FakeTree(output=None))), 1)


class ReferenceTest(unittest.TestCase):
    def test_links_that_lead_somewhere_pass(self):
        self.assertEqual(check("[a](../a/b.cpp) [b](#second-part) [c](page.md#a-page-code) "
                               "[d](https://x.y/z) [e](..) [f](../a)"), [])

    def test_links_that_lead_nowhere_are_found(self):
        self.assertEqual(check("[a](../a/c.cpp)"), ["a link leads nowhere: ../a/c.cpp"])
        self.assertEqual(check("[a](#third-part)"), ["there is no heading for the link #third-part"])

    def test_paths_in_backticks_exist(self):
        self.assertEqual(check("`a/b.cpp`, `a/`, `a/NAME.cpp` and, in another project, `csrc/x.cpp`"), [])
        self.assertEqual(check("`a/c.cpp`"), ["there is no a/c.cpp"])
        self.assertEqual(check("`a/c/`"), ["there is no a/c/"])

    def test_names_of_tests_exist(self):
        self.assertEqual(check('The test "a name"'), [])
        self.assertEqual(check('the test "a\nname"'), [])
        self.assertEqual(check('The test "b"'), ['there is no test "b"'])


if __name__ == "__main__":
    unittest.main()
