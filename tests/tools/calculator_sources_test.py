#!/usr/bin/env python3
"""The calculator's sources keep to the standard library that Emscripten 3.1 has, and to compat.h.

Emscripten 3.1.6 of Debian 12 has libc++ 13. CI has no Emscripten, and GCC's library has all of C++20.
"""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tools/site/calculator"

# C++20 that libc++ 13 lacks, by its header <version>: a pattern for the name behind "std::".
LACKING = re.compile(r"\bstd::((?:ranges|views)::\w+|atomic_ref|bit_cast|source_location|format\w*|jthread|stop_\w+|"
                     r"\w*syncbuf|osyncstream|assume_aligned|(?:make|allocate)_\w+_for_overwrite|pmr::\w+|"
                     r"(?:compare|lexicographical_compare)_three_way|(?:strong|weak|partial)_order|coroutine_\w+|"
                     r"is_layout_compatible\w*|is_pointer_interconvertible\w*)\b")


def sources():
    """The files that CMakeLists.txt compiles, and the headers of their folders."""
    text = (FOLDER / "CMakeLists.txt").read_text(encoding="utf-8")
    patterns = re.findall(r"\$\{root\}/(\w[\w/]*)/\*\.cpp", text)
    excluded = re.compile(re.search(r'EXCLUDE REGEX\s+"([^"]+)"', text)[1].replace("\\\\", "\\"))
    found = [path for folder in patterns for path in (ROOT / folder).rglob("*") if path.suffix in {".cpp", ".h"}]
    return [path for path in found if not excluded.search(str(path).replace(".h", ".cpp"))]


def lacking(text):
    """The names in code that the library lacks."""
    code = "\n".join(line.partition("//")[0] for line in text.splitlines())
    return set(LACKING.findall(code))


def provided():
    """The names that compat.h defines, with the namespace below std."""
    text = (FOLDER / "compat.h").read_text(encoding="utf-8")
    outer, _, ranges = text.partition("namespace ranges {")
    name = re.compile(r"^(?:class |(?:constexpr |inline )*[\w<>:]+ )(\w+)(?:\(| \{)", re.M)
    return set(name.findall(outer)) | {f"ranges::{one}" for one in name.findall(ranges)}


class CalculatorSourcesTest(unittest.TestCase):
    def test_compat_has_what_the_library_lacks(self):
        missing = {f"{path.relative_to(ROOT)}: std::{name}" for path in sources()
                   for name in lacking(path.read_text(encoding="utf-8")) - provided()}
        self.assertEqual(set(), missing, "define them in tools/site/calculator/compat.h, or do without")

    def test_the_planner_is_among_the_sources(self):
        names = {path.relative_to(ROOT).as_posix() for path in sources()}
        self.assertIn("tools/plan/plan.cpp", names)
        self.assertIn("sharding/plan/plan.h", names)
        self.assertNotIn("runtime/cuda/memory.cpp", names)

    def test_names_are_found_in_code_alone(self):
        self.assertEqual({"ranges::sort"}, lacking("std::ranges::sort(x);  // not std::format\nstd::sort(a, b);"))
        self.assertEqual({"atomic_ref"}, lacking("std::atomic_ref<int> count(x);"))

    def test_compat_is_read(self):
        self.assertLessEqual({"bit_cast", "atomic_ref", "ranges::find"}, provided())


if __name__ == "__main__":
    unittest.main()
