#!/usr/bin/env python3
"""`tessera completion SHELL` completes subcommands, options and keys.

  completion_test.py PROGRAM
"""
import shutil
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)


def script(shell):
    return subprocess.run([PROGRAM, "completion", shell], capture_output=True, text=True, check=True).stdout


def candidates(*words):
    """What bash offers for the last one of the words."""
    ask = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tessera; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script('bash')}\n{ask}", "bash", "tessera", *words], capture_output=True,
                          text=True, check=True)
    return done.stdout.split()


class BashTest(unittest.TestCase):
    def test_subcommands(self):
        self.assertEqual(candidates("pl"), ["plan"])
        self.assertLessEqual({"train", "launch", "completion"}, set(candidates("")))
        self.assertEqual(candidates("checkpoint", "ver"), ["verify"])

    def test_options_of_the_subcommand_alone(self):
        self.assertEqual(candidates("train", "gpt2", "--res"), ["--resume", "--restarted"])
        self.assertEqual(candidates("checkpoint", "consolidate", "--o"), ["--out"])
        self.assertEqual(candidates("checkpoint", "list", "--o"), [])
        self.assertLessEqual({"--prompt", "--ids", "--prompts"}, set(candidates("generate", "--")))  # a group

    def test_every_option_of_help(self):
        for command in ("train", "plan", "prepare", "eval", "export"):
            text = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True, check=True).stdout
            shown = {word.split(",")[-1] for word in text.replace(",--", " --").split() if word.startswith("--")}
            offered = set(candidates(command, "--"))
            self.assertTrue(offered)
            self.assertLessEqual(offered, shown)

    def test_keys_of_train_and_plan_alone(self):
        for command in ("train", "plan"):
            self.assertEqual(candidates(command, "gpt2", "data.batch"), ["data.batch_size="])
        self.assertEqual(candidates("eval", "data.batch"), [])


class SyntaxTest(unittest.TestCase):
    def test_the_shells_read_their_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell) is None:
                continue
            with self.subTest(shell=shell):
                checked = subprocess.run([shell, "-n", "/dev/stdin"], input=script(shell), capture_output=True, text=True,
                                         check=False)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    @unittest.skipIf(shutil.which("fish") is None, "no fish")
    def test_fish_offers_options_and_keys(self):
        for line, expected in (("tessera pl", "plan"), ("tessera plan gpt2 --mach", "--machine"),
                               ("tessera train gpt2 data.batch", "data.batch_size=")):
            ask = f"{script('fish')}\ncomplete -C '{line}'"
            done = subprocess.run(["fish", "--no-config", "-c", ask], capture_output=True, text=True, check=True)
            self.assertIn(expected, [one.split("\t")[0] for one in done.stdout.splitlines()])


if __name__ == "__main__":
    unittest.main()
