#!/usr/bin/env python3
"""A closed pipe on standard output ends every program and every Python tool silently, by SIGPIPE.

  closed_pipe_test.py FOLDER    with the programs
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
TOOLS = sorted(path for path in (ROOT / "tools").rglob("*.py") if "signal.SIGPIPE" in path.read_text(encoding="utf-8"))

# What a program is called with; the others of PRINTS print without arguments.
ARGUMENTS = {"tessera": ["config-reference"], "calculator": ["plan", "gpt2"], "lab.py": ["list"], "counts_report.py": [],
             "trace_step": ["fsdp"], "trace_attention": ["--keys", "128"], "count_ladder": ["--help"]}
# Programs that print; tests are others.
PRINTS = re.compile(r"tessera|calculator|bench_.*|one_step|trace_.*|count_ladder|cuts|footprints|partitions|tour")
# Tools that need a library or a file.
SILENT_WITHOUT = ("No module named", "not installed", r"^counts_report.py FILE")


def commands(paths):
    """Each file with its arguments. Benchmarks print their options: they have no other output so soon."""
    for path in paths:
        default = ["--help"] if path.name.startswith("bench_") or path.suffix == ".py" else []
        yield path, [path, *ARGUMENTS.get(path.name, default)]


def programs():
    return sorted(path for path in PROGRAMS.iterdir() if PRINTS.fullmatch(path.name) and os.access(path, os.X_OK))


def with_closed_pipe(command, **options):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as output:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True,
                              timeout=300, check=False, **options)


class ClosedPipeTest(unittest.TestCase):
    def check_silence(self, command, **options):
        ended = with_closed_pipe(command, **options)
        self.assertEqual((ended.returncode, ended.stderr), (-signal.SIGPIPE, ""))

    def test_programs_end_by_the_signal_without_a_line(self):
        self.assertIn(PROGRAMS / "tessera", programs())
        for path, command in commands(programs()):
            with self.subTest(program=path.name):
                self.check_silence(command)

    def test_a_parent_that_ignores_the_signal_changes_nothing(self):
        self.check_silence([PROGRAMS / "tessera", "config-reference"], restore_signals=False)

    def test_tools_end_by_the_signal_without_a_line(self):
        seen = 0
        for path, command in commands(TOOLS):
            with self.subTest(tool=path.name):
                whole = subprocess.run([sys.executable, *command], stdin=subprocess.DEVNULL, capture_output=True,
                                       text=True, timeout=300, check=False)
                if whole.stdout:
                    seen += 1
                    self.check_silence([sys.executable, *command])
                else:
                    self.assertRegex(whole.stderr, "|".join(SILENT_WITHOUT))
        self.assertGreaterEqual(seen, 8)

    def test_every_tool_of_the_command_line_restores_the_signal(self):
        mains = {path for path in (ROOT / "tools").rglob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
        self.assertEqual(set(), mains - set(TOOLS))

    def test_a_full_disk_is_one_line(self):
        for path, command in commands([PROGRAMS / "tessera"]):
            with self.subTest(program=path.name), open("/dev/full", "w", encoding="utf-8") as full:
                ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(ended.returncode, 1)
                self.assertRegex(ended.stderr, r"^tessera: standard output could not be written: [^\n]*\n$")


if __name__ == "__main__":
    unittest.main()
