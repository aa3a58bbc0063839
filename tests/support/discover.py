#!/usr/bin/env python3
"""discover.py LIST FOLDER CUDA ON_DEVICE COMMAND...: writes CTest's list of a test program's cases.

Each case is run by its name, alone. Its CTest name is FOLDER/FILE:NAME, its label FOLDER, or FOLDER:device
if its file is one of ON_DEVICE (names that ; separates). CUDA is TESSERA_CUDA: builds with a GPU run the
cases that are tagged [cpu] on the CPU.
"""
import pathlib
import subprocess
import sys


def quoted(text):
    return f"[==[{text}]==]"


def main():
    target, folder, cuda, on_device, *command = sys.argv[1:]
    listed = subprocess.run([*command, "--list-with-files"], check=True, capture_output=True, text=True).stdout
    lines = []
    for line in listed.splitlines():
        path, tags, name = line.split("\t")
        if "[.]" in tags:
            continue  # run by hand
        file = pathlib.Path(path).name
        about_cpu = "[cpu]" in tags and cuda != "off"
        label = f"{folder}:device" if file in on_device.split(";") and not about_cpu else folder
        test = quoted(f"{folder}/{file.removesuffix('_test.cpp')}:{name}")
        # Catch passes if it finds no test of the name, but for the warning. A comma would end the name.
        spec = quoted(name.replace("\\", "\\\\").replace(",", "\\,"))
        program = " ".join(quoted(word) for word in command)
        if "[races]" in tags:
            label += ";races"  # on purpose: the preset `tsan` leaves them out
        properties = f"LABELS {quoted(label)} TIMEOUT 300" + " ENVIRONMENT TESSERA_TEST_DEVICE=cpu" * about_cpu
        lines += [f"add_test({test} {program} {spec} --warn NoTests)",
                  f"set_tests_properties({test} PROPERTIES {properties})"]
    if not lines:
        sys.exit(f"discover.py: {command[-1]} has no test")
    pathlib.Path(target).write_text("\n".join(lines) + "\n", encoding="utf-8")


main()
