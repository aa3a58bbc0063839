#!/usr/bin/env python3
"""training_chapter_test.py TESSERA: runs every command of docs/training.md in its order, on a small text."""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Files that must be there in the end.
RESULTS = ["runs/mine/model/model.safetensors", "runs/faster/model/config.json", "runs/sharded/log.txt", "report.html",
           "exported/model.safetensors", "mine.gguf", "runs/tuned/model/tokenizer.json", "runs/mine/step-000060/manifest.json"]
# Texts that the output of the commands must contain.
PRINTED = ["tokens to train on", "fsdp", "resume   after step 40", "validation loss", "bits per byte", "The "]


def run(command, folder, program):
    words = shlex.split(command)
    done = subprocess.run([program, *words[1:]], cwd=folder, capture_output=True, check=False,
                          text=True, errors="replace", stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"docs/training.md: `{command}` ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    program = os.path.abspath(sys.argv[1])
    chapter = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    configuration = re.search(r"```yaml\n(.*?)```", chapter, re.S).group(1)
    commands = re.findall(r"^    (tessera .*)$", chapter, re.M)
    if len(commands) < 10:
        sys.exit(f"docs/training.md has {len(commands)} commands; expected at least 10")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "texts/inner").mkdir(parents=True)
        for i, path in enumerate(["a.txt", "inner/b.md"]):
            text = "".join(f"The number {n} follows {n - 1}.\n" for n in range(200 * i, 200 * i + 200))
            (folder / "texts" / path).write_text(text)
        (folder / "mine.yaml").write_text(configuration)
        output = "".join(run(command, folder, program) for command in commands)
        output += (folder / "runs/mine/log.txt").read_text(encoding="utf-8")
        missing = [path for path in RESULTS if not (folder / path).exists()]
        missing += [text for text in PRINTED if text not in output]
        if missing:
            sys.exit(f"docs/training.md: after its commands there is no {missing[0]!r}\n{output}")
    print(f"{len(commands)} commands ran")


if __name__ == "__main__":
    main()
