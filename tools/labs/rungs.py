"""Labs on the rungs of the ladder: a fault in one file, which compiles in seconds (tools/labs/rungs.toml)."""
import functools
import pathlib
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
FOLDER = BUILD / "rung_lab"  # the reader's copy of the rung that has been started
LINE = re.compile(r"N = (\d)  loss (\S+ -> \S+)  (\w{16})  sent +(\d+)  held +(\d+)")
RUNS = 5  # a race may go unseen in one of them


class Outcome(NamedTuple):
    """The line that a rung prints."""
    loss: str
    hash: str
    sent: int
    held: int


class Lab(NamedTuple):
    number: int
    rung: str
    chapter: str
    title: str
    find: str
    replace: str
    same: list
    steady: bool
    symptom: str
    question: str
    answer: str
    hints: list
    learnt: str
    prints: str = ""  # a part of the line for N = 4

    @property
    def name(self):
        return f"r{self.number}"

    def text(self):
        """The rung with the fault."""
        text = self.sound_text()
        if text.count(self.find) != 1:
            sys.exit(f"lab.py: the fault of lab {self.name} does not fit examples/ladder/{self.rung}.cpp")
        return text.replace(self.find, self.replace)

    def sound_text(self):
        return (ROOT / f"examples/ladder/{self.rung}.cpp").read_text(encoding="utf-8")


@functools.cache
def labs():
    stories = tomllib.loads((ROOT / "tools/labs/rungs.toml").read_text(encoding="utf-8"))["lab"]
    return [Lab(number=number, **story) for number, story in enumerate(stories, 1)]


@functools.cache
def commands_of(rung):
    """The commands that compile and link the rung, in the build folder. The libraries are built first."""
    if not (BUILD / "build.ninja").exists():
        sys.exit("lab.py: build/ has no build; first: cmake --preset release")
    target = f"ladder_{rung}"
    if subprocess.run(["cmake", "--build", BUILD, "--target", target], stdout=subprocess.DEVNULL, check=False).returncode:
        sys.exit(f"lab.py: {target} does not build")
    lines = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return [line for line in lines if f"{target}.dir/{rung}.cpp.o" in line]


def compiled(rung, source):
    """The program that a file in place of the rung makes. Ends with the compiler's messages if it does not compile."""
    program = source.with_suffix("")
    for command in commands_of(rung):
        for old, new in ((rf"\S*/{rung}\.cpp\.o", f"{program}.o"), (rf"\S*/{rung}\.cpp(?=\s|$)", str(source)),
                         (rf"-o \S*bin/ladder/{rung}\b", f"-o {shlex.quote(str(program))}")):
            command = re.sub(old, new, command)
        run = subprocess.run(command, shell=True, cwd=BUILD, capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"{run.stdout}{run.stderr}lab.py: {source} does not compile")
    return program


def outcomes(program):
    """What a rung prints, by the number of ranks. Ends if it fails."""
    try:
        run = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"lab.py: {program} did not end in 120 seconds; does a rank wait for a collective that another one skips?")
    found = {int(ranks): Outcome(loss, bits, int(sent), int(held))
             for ranks, loss, bits, sent, held in LINE.findall(run.stdout)}
    if run.returncode or len(found) != 2:
        sys.exit(f"{run.stdout}{run.stderr}lab.py: {program} failed")
    return found


def sound(rung):
    """The outcome of the rung itself."""
    commands_of(rung)  # builds it
    return outcomes(BUILD / "bin/ladder" / rung)


def line_of(ranks, outcome):
    return f"N = {ranks}  loss {outcome.loss}  {outcome.hash}  sent {outcome.sent:8}  held {outcome.held}"


def shown(name, found):
    for ranks, outcome in found.items():
        print(f"  {name:12} {line_of(ranks, outcome)}", flush=True)


def start(lab):
    print(f"Lab {lab.name}: {lab.title}\n\n{lab.symptom}\n", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    source = FOLDER / f"{lab.rung}.cpp"
    source.write_text(lab.text(), encoding="utf-8")
    right = sound(lab.rung)
    shown("should print", right)
    program = compiled(lab.rung, source)
    for _ in range(1 if lab.steady else 3):
        shown("prints", outcomes(program))
    print(f"\nPredict: {lab.question}\n\nFind the fault in {source} and repair it there. Then: tools/lab.py check, or hint.")


def check(lab):
    """Ends with the wrong line if one of the runs prints it."""
    source = FOLDER / f"{lab.rung}.cpp"
    right, program = sound(lab.rung), compiled(lab.rung, source)
    for _ in range(RUNS):
        found = outcomes(program)
        if found != right:
            shown("should print", right)
            shown("prints", found)
            sys.exit("lab.py: still wrong")


def solution(lab):
    print(f"Prediction: {lab.answer}\n\nexamples/ladder/{lab.rung}.cpp")
    for word, text in (("with the fault", lab.replace), ("repaired", lab.find)):
        print(*(f"  {word:15} {line}" for line in text.splitlines() or ["(nothing)"]), sep="\n")


def kept(right, found):
    """The parts of the line that the fault leaves as they are."""
    parts = {"loss": found[4].loss == right[4].loss, "hash": found[4].hash == right[4].hash,
             "sent": found[4].sent == right[4].sent, "hash of 2": found[2].hash == right[2].hash}
    return sorted(name for name, equal in parts.items() if equal)


def verify(lab):
    """Whether the rung with the fault prints a line as the story tells it. Prints an outcome."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    source = FOLDER / f"verify_{lab.name}.cpp"
    source.write_text(lab.text(), encoding="utf-8")
    right, program = sound(lab.rung), compiled(lab.rung, source)
    runs = [outcomes(program) for _ in range(RUNS)]
    fitting = [kept(right, found) == sorted(lab.same) and lab.prints in line_of(4, found[4]) for found in runs]
    fits = all(fitting) and len(set(map(str, runs))) == 1 if lab.steady else any(fitting)
    print(f"{lab.name:3} {lab.title:<36} {lab.rung}: {'as told' if fits else 'WRONG'}", flush=True)
    if not fits:
        for name, found in [("without", right), *(("with", found) for found in runs)]:
            shown(name, found)
    return fits


def block(lab):
    """The lab as its chapter shows it, in Markdown."""
    def paragraph(text):
        return textwrap.fill(text, 118, break_on_hyphens=False, break_long_words=False)
    return "\n\n".join([
        paragraph(f"**Lab {lab.name}: {lab.title}.** `tools/lab.py start {lab.name}` plants a fault in "
                  f"`examples/ladder/{lab.rung}.cpp` and runs it. {lab.symptom} *Predict:* {lab.question}"),
        "<details><summary>Solution</summary>", paragraph(lab.answer), paragraph(lab.learnt), "</details>"])
