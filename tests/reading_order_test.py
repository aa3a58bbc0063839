#!/usr/bin/env python3
"""reading_order.py counts the lines that a list names, and finds a list that is wrong or too long."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "sharding"))
import reading_order  # noqa: E402: the path comes first

CODE = """\
// A class.
class Block final : public Layer {
 public:
  Block(int a)
      : a_{a},
        b_(a) {}

  int forward(const X& x) const override {
    if (x.empty()) return helper(x);
    return 1;
  }
};

int helper(const X& x);

int helper(const X& x) {
  return x.size();
}

template <typename T>
void Other::run(T first,
                T second) {
  helper(first);
}
"""


def chapter(rows, total):
    return f"<!-- reading order -->\n| file | lines | |\n|---|--:|---|\n{rows}| together | {total} | |\n<!-- end of reading order -->\n"


def findings(rows, total, name="context_parallelism"):
    return list(reading_order.findings_in(name, chapter(rows, total), {"a.cpp": CODE}.get))


class ReadingOrderTest(unittest.TestCase):
    def lines(self, name):
        return [len(one.splitlines()) for one in reading_order.definitions_of(name, CODE)]

    def test_definitions_are_counted_without_declarations_and_calls(self):
        expected = {"Block": [11], "Block::Block": [3], "Block::forward": [4], "helper": [3], "Other::run": [4], "absent": []}
        for name, lines in expected.items():
            self.assertEqual(self.lines(name), lines, name)

    def test_a_right_list_has_no_findings(self):
        rows = "| [`a.cpp`](../a.cpp) | 24 | all |\n| [`a.cpp`](../a.cpp): `helper`, `Other::run` | 7 | two |\n"
        self.assertEqual(findings(rows, 31), [])

    def test_wrong_lists_are_found(self):
        for rows, total, expected in [
                ("| [`a.cpp`](../a.cpp) | 25 | |\n", 25, "a.cpp has 24 lines; the reading order says 25"),
                ("| [`a.cpp`](../a.cpp) | 24 | |\n", 23, "the counts add up to 24; the reading order says 23"),
                ("| [`b.cpp`](../b.cpp) | 24 | |\n", 24, "b.cpp, which does not exist"),
                ("| [`a.cpp`](../a.cpp): `absent` | 3 | |\n", 3, "names absent, which a.cpp does not define"),
                ("| [`a.cpp`](../a.cpp) | 24 | |\n| [`a`](../a.cpp) | 3 | |\n", 24, "has another form"),
                ("", 0, "has no reading order")]:
            self.assertTrue(any(expected in one for one in findings(rows, total)), expected)

    def test_a_list_that_is_too_long_is_found(self):
        rows = "| [`a.cpp`](../a.cpp) | 24 | |\n" * 21
        self.assertEqual(findings(rows, 504), ["docs/context_parallelism.md: the reading order has 504 lines; at most 500 are allowed"])
        self.assertEqual(findings(rows, 504, "sharding"), [])

    def test_counts_are_corrected(self):
        rows = "| [`a.cpp`](../a.cpp) | 1 | all |\n| [`a.cpp`](../a.cpp): `helper` | 1 | one |\n"
        text = reading_order.corrected(chapter(rows, 2), {"a.cpp": CODE}.get)
        self.assertEqual(text, chapter(rows.replace(" | 1 | all", " | 24 | all").replace(" | 1 | one", " | 3 | one"), 27))


if __name__ == "__main__":
    unittest.main()
