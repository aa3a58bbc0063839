#!/usr/bin/env python3
"""compile_times.py: CPU seconds of a build from nothing, without a compiler's cache.

Builds the preset `release` in the folder build-times: first the program tessera, then the rest. Prints the CPU
seconds (user and system) of compilers and linkers for each target, and the files that take longest.

Exits 1 if tessera takes more than 360 s, the rest more than 480 s, or a file more than 12 s that no pattern
of LONG matches. The limits are of a Xeon (Emerald Rapids) that has nothing else to do.
"""
import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build-times"
LOG = BUILD / "times.txt"
LIMITS = {"tessera": 360, "all": 480}  # targets, built one after the other
FILE_LIMIT = 12
# Files that may take longer: a pattern of the path, and the seconds.
LONG = {
    r"kernels/matmul/cpu/avx512\.cpp\.o$": 14,
    r"tests/.*/support/main\.cpp\.o$": 14,  # Catch
    r"/unity_\w+\.cxx\.o$": 30,  # several sources, see tessera_together
}


def compile_one(command):
    """Runs a compiler or linker, and notes its CPU seconds and its output."""
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    output = command[command.index("-o") + 1] if "-o" in command else command[-1]
    with open(LOG, "a", encoding="utf-8") as log:  # a short line is appended whole
        log.write(f"{usage.ru_utime + usage.ru_stime:.2f} {output}\n")
    return os.waitstatus_to_exitcode(status)


def measure(target):
    """CPU seconds by file of what the target still lacks."""
    LOG.write_text("", encoding="utf-8")
    subprocess.run(["cmake", "--build", BUILD, "--target", target], check=True, stdout=subprocess.DEVNULL)
    lines = [line.split() for line in LOG.read_text(encoding="utf-8").splitlines()]
    return {output: float(seconds) for seconds, output in lines}


def target_of(output):
    """tools/CMakeFiles/tessera_tools.dir/x.cpp.o belongs to tessera_tools; programs are linked."""
    folders = [part for part in pathlib.PurePath(output).parts if part.endswith(".dir")]
    return folders[0].removesuffix(".dir") if folders else "linking"


def report(name, times, limit):
    targets = collections.Counter()
    for output, seconds in times.items():
        targets[target_of(output)] += seconds
    total = sum(times.values())
    print(f"{name}: {total:.0f} CPU s of {limit} in {len(times)} files")
    for target, seconds in targets.most_common(12):
        print(f"  {seconds:6.1f}  {target}")
    print("  longest files:")
    long = []
    for output, seconds in sorted(times.items(), key=lambda item: -item[1])[:8]:
        print(f"  {seconds:6.1f}  {output}")
        allowed = next((LONG[pattern] for pattern in LONG if re.search(pattern, output)), FILE_LIMIT)
        if seconds > allowed:
            long.append(f"{output} takes {seconds:.1f} CPU s, more than {allowed}: cut it, or list it in LONG")
    return long + ([f"{name} takes {total:.0f} CPU s, more than {limit}"] if total > limit else [])


def main():
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        return compile_one(sys.argv[1:])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    if len(sys.argv) > 1:
        print(__doc__)
        return 0
    shutil.rmtree(BUILD, ignore_errors=True)
    launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()}"
    subprocess.run(["cmake", "--preset", "release", "-B", BUILD, f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
                    f"-DCMAKE_CXX_LINKER_LAUNCHER={launcher}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    findings = []
    for target, limit in LIMITS.items():
        findings += report(target, measure(target), limit)
    for finding in findings:
        print(f"compile_times.py: {finding}", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
