"""Plants faults in a copy of the sources, one at a time, and sees tests turn red.

The programs that do so are tables of faults, BATCHES of them, and a call of run() each. Their arguments:

  (none)     builds the copy, sees the tests green, plants each fault there and expects a red test
  NAME...    only these faults
  --check    only sees that every fault still fits the sources

A fault that no test notices is a gap in the tests: the program ends with 1 and names it. One that
does not compile is no fault, and ends it so, too.
"""
import difflib
import pathlib
import subprocess
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Fault(NamedTuple):
    path: str
    old: str  # occurs in the file exactly once
    new: str
    tests: list  # the test programs that may notice, the likeliest first; options may follow a name


def faults_of(table, prefix="test_", tests=()):
    """Faults by name, of a table {(file, *tests without the prefix): {name: (old, new)}}, or with `tests` of
    {file: {name: (old, new)}}."""
    faults = {}
    for key, entries in table.items():
        path, *own = [key] if isinstance(key, str) else key
        for name, (old, new) in entries.items():
            faults[name] = Fault(path, old, new, [prefix + test for test in own] or list(tests))
    return faults


class Copy:
    """The sources in a folder of their own, and what is built from them."""

    def __init__(self, batch, folder=None):
        """As the batch builds them; in `folder`, or in the batch's own."""
        self.source = ROOT / (folder or batch.folder)
        self.emulator = batch.emulator
        self.configuration = ["--preset", batch.preset, *batch.options]
        self.selection = batch.selection
        self.log = self.source / "build.log"

    def update(self):
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                                check=True, capture_output=True, text=True).stdout.splitlines()
        for name in listed:
            if not (ROOT / name).is_file():
                continue
            target, content = self.source / name, (ROOT / name).read_bytes()
            if not target.exists() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)

    def cmake(self, *arguments):
        """Did it succeed?"""
        with self.log.open("w") as log:
            return subprocess.run(["cmake", *arguments], cwd=self.source, stdout=log,
                                  stderr=log).returncode == 0

    def configure(self):
        return self.cmake("-B", "build", *self.configuration)

    def build(self, tests):
        return self.cmake("--build", "build", "--target", *(test.split()[0] for test in tests))

    def failure_of(self, test):
        """How a built test program fails, or None."""
        program, *options = test.split()
        command = [*self.emulator, self.source / "build" / "bin" / program, *options, *self.selection, "--abort"]
        try:
            outcome = subprocess.run(command, capture_output=True, timeout=300)
        except subprocess.TimeoutExpired:
            return f"{test} (hangs)"
        return test if outcome.returncode != 0 else None

    def noticed(self, fault):
        """Plants a fault; how it was noticed, or None."""
        target = self.source / fault.path
        original = target.read_text()
        target.write_text(original.replace(fault.old, fault.new))
        try:
            for test in fault.tests:  # most faults are noticed by the first: the others need no build
                if not self.build([test]):
                    return "THE COMPILER, so it is no fault"
                red = self.failure_of(test)
                if red is not None:
                    return red
            return None
        finally:
            target.write_text(original)


def misfits(faults):
    """The faults whose text does not occur exactly once."""
    wrong = []
    for name, fault in faults.items():
        occurrences = (ROOT / fault.path).read_text().count(fault.old)
        if occurrences != 1:
            wrong.append(f"{name}: its text occurs {occurrences} times in {fault.path}")
    return wrong


class Batch(NamedTuple):
    """Faults by name that share a copy of the sources. The copy lies in `folder` and is built as the
    CMake preset says."""
    faults: dict
    folder: str
    preset: str
    options: tuple = ()
    selection: tuple = ()  # of the test cases, as Catch takes it
    emulator: tuple = ()   # the command that runs a test program, where the CPU cannot
    needs: str = "."       # a folder; without it the batch is skipped


def plant(batch, names):
    """Plants the named faults of a batch. The number that no test noticed, or None if the tests are
    red without any fault."""
    chosen = {name: fault for name, fault in batch.faults.items() if name in names}
    if not (ROOT / batch.needs).is_dir():
        print(f"skipped, for want of {batch.needs}: {', '.join(chosen)}")
        return 0
    copy = Copy(batch)
    copy.configuration += ["-D", "TESSERA_TOGETHER=OFF"]  # a fault is one file to compile, not a group of files
    copy.update()
    tests = list(dict.fromkeys(test for fault in chosen.values() for test in fault.tests))
    if not copy.configure() or not copy.build(tests):
        print(f"the tests do not build without any fault: see {copy.log}")
        return None
    red = next(filter(None, map(copy.failure_of, tests)), None)
    if red is not None:
        print(f"{red} is red without any fault")
        return None
    missed = 0
    for name, fault in chosen.items():
        red = copy.noticed(fault)
        print(f"{name:<58} {'noticed by ' + red if red else 'NOT NOTICED'}", flush=True)
        missed += red is None or red.startswith("THE")
    return missed


def run(arguments, batches):
    if {"-h", "--help"}.intersection(arguments):
        print(__doc__)
        return 0
    faults = {name: fault for batch in batches for name, fault in batch.faults.items()}
    wrong = misfits(faults)
    if wrong or arguments == ["--check"]:
        print("\n".join(wrong) or f"{len(faults)} faults fit the sources")
        return 1 if wrong else 0
    for name in arguments:
        if name not in faults:
            near = difflib.get_close_matches(name, faults, cutoff=0.4)
            print(f"there is no fault '{name}'; " + (f"near: {'; '.join(near)}" if near else "the table has their names"))
            return 1
    names = set(arguments or faults)
    missed = 0
    for batch in batches:
        if names.isdisjoint(batch.faults):
            continue
        more = plant(batch, names)
        if more is None:
            return 1
        missed += more
    print(f"{missed} not noticed" if missed else "all noticed")
    return 1 if missed else 0
