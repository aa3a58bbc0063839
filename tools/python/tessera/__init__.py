"""Trains transformer language models and computes with them, by the program `tessera`.

    import tessera

    run = tessera.train("run.yaml", train={"steps": 200}, data={"batch_size": 4})
    run["metrics"]["loss"]                                       # a NumPy array
    tessera.generate(run["dir"], "It was", tokens=50)[0]["text"]

A configuration is the path of a YAML file, the name of a preset, or a dictionary of sections. Keys of
docs/configuration.md come after it, as sections (train={"steps": 200}) or in `overrides`, where
{"train.steps": 200} and {"train": {"steps": 200}} mean the same; sections win. None is an empty value.

The program runs in a process of its own. If it fails, `Error` has its one line.
"""
from __future__ import annotations

import collections
import ctypes
import json
import operator
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, TypedDict, Union

import numpy as np

__all__ = ["Error", "Generated", "Run", "Scores", "generate", "load_metrics", "plan", "program", "score", "train"]

Path = Union[str, "os.PathLike[str]"]
Config = Union[Path, Mapping[str, Any]]
Ids = Union[Sequence[int], np.ndarray]

program: Optional[Path] = None
"""The program to run. None: `tessera` among the scripts of this Python's environment, else on PATH."""


class Error(Exception):
    """The program's one line: what is wrong, where, and what to do."""


class Run(TypedDict):
    """A run folder. `model` is None if the run was stopped before its last step."""

    dir: str
    model: Optional[str]
    metrics: Dict[str, np.ndarray]


class Generated(TypedDict, total=False):
    """`ids` (int32) begins with the prompt; `log_probabilities` (float32) are those of the new tokens.

    `text` is missing if all prompts were ids, and begins with the prompt unless it was a chat's.
    """

    ids: np.ndarray
    log_probabilities: np.ndarray
    text: str


class Scores(TypedDict):
    """`loss` is the mean of the negated `log_probabilities`: float32 [rows, tokens - 1]."""

    loss: float
    log_probabilities: np.ndarray


def train(config: Config, overrides: Optional[Mapping[str, Any]] = None, *, progress: bool = True,
          **sections: Any) -> Run:
    """Trains a model, or continues a run that was stopped in its folder (`train.dir`).

    Ctrl-C, or the notebook's stop button, stops the run as it does in a terminal: it finishes the step
    and saves a checkpoint, then KeyboardInterrupt is raised. The same call continues. A second Ctrl-C
    ends the run at once. If this Python ends, the run stops with a checkpoint, too.
    """
    arguments = ["train", *_settings(config, overrides, sections), "train.progress=lines"]
    show = _Progress(progress)
    last_lines: collections.deque[str] = collections.deque(maxlen=20)
    folder = ""

    def see(line: str) -> None:
        nonlocal folder
        last_lines.append(line)
        named = _RUN_FOLDER.fullmatch(line)
        folder = folder or (named.group(1) if named else "")
        if not line.startswith(_ERROR):
            show.line(line)

    with _start(arguments, stderr=subprocess.STDOUT) as process:
        try:
            interrupted = _read_lines(process, see)
        except BaseException:
            process.terminate()
            raise
        finally:
            show.finish()
    if interrupted and process.returncode in (0, -signal.SIGINT):
        raise KeyboardInterrupt
    _check_status(process.returncode, last_lines)
    folder = os.path.abspath(folder)
    model = os.path.join(folder, "model")
    return {"dir": folder, "model": model if os.path.isdir(model) else None, "metrics": load_metrics(folder)}


def plan(config: Config, overrides: Optional[Mapping[str, Any]] = None, *,
         ranks: Union[int, str, Sequence[int], None] = None, nodes: Optional[int] = None,
         machine: Optional[Path] = None, **sections: Any) -> Dict[str, Any]:
    """Predicts memory, traffic and, with a machine, the time of a step: what `tessera plan --json` prints.

    docs/seeing.md describes the fields. Several `ranks` give an entry of "plans" each.
    """
    if isinstance(ranks, Iterable) and not isinstance(ranks, str):
        ranks = ",".join(map(str, ranks))
    return _json(["plan", "--json", *_options(ranks=ranks, nodes=nodes, machine=machine),
                  *_settings(config, overrides, sections)])[0]


def generate(model: Path, prompts: Union[str, Sequence[Union[str, Ids]]], *, tokens: Optional[int] = None,
             temperature: Optional[float] = None, top_k: Optional[int] = None, top_p: Optional[float] = None,
             seed: Optional[int] = None, stop: Sequence[Union[int, str]] = (), chat: bool = False,
             system: Optional[str] = None, batch: Optional[int] = None, dtype: Optional[str] = None,
             device: Optional[str] = None, ranks: Optional[int] = None,
             threads: Optional[int] = None) -> List[Generated]:
    """Continues every prompt: a text or a list of token ids. A text alone is a list of one.

    `model` is a run folder, a Hugging Face folder or a name on the hub. `tessera generate --help`
    explains the options; None is the program's default.
    """
    rows = [one if isinstance(one, str) else _ids(one) for one in ([prompts] if isinstance(prompts, str) else prompts)]
    options = _options(model=model, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                       stop=",".join(map(str, stop)) or None, system=system, batch=batch, dtype=dtype,
                       device=device, ranks=ranks, threads=threads)
    flags = ["--json", "--log-probabilities", *["--chat"] * chat]
    results: List[Generated] = []
    for line in _json_with_file(["generate", *flags, *options], "--prompts", rows):
        result: Generated = {"ids": np.array(line["ids"], np.int32),
                             "log_probabilities": np.array(line["log_probabilities"], np.float32)}
        if "text" in line:
            result["text"] = line["text"]
        results.append(result)
    return results


def score(model: Path, tokens: Union[Sequence[Ids], np.ndarray], *, dtype: Optional[str] = None,
          device: Optional[str] = None, ranks: Optional[int] = None, threads: Optional[int] = None) -> Scores:
    """Log-probabilities that a model gives to rows of token ids, all of one length.

    They have the same bits as in training and in `generate`.
    """
    options = _options(model=model, dtype=dtype, device=device, ranks=ranks, threads=threads)
    result = _json_with_file(["score", *options], "--tokens", [_ids(row) for row in tokens])[0]
    return {"loss": result["loss"], "log_probabilities": np.array(result["log_probabilities"], np.float32)}


def load_metrics(run: Path) -> Dict[str, np.ndarray]:
    """The lines of a run's metrics.jsonl (docs/configuration.md) as one array per field, without events.

    Nested fields have a dot, as peak_bytes.total. Counts are int64; other numbers are float64, and NaN
    where a line has none. np.float32(loss) has the bits of training. A run may still be writing the file.
    """
    path = os.path.join(run, "metrics.jsonl")
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if line.endswith("\n")]
    except OSError as error:
        raise Error(f"{path}: {error.strerror}; name the folder of a run (train.dir)") from None
    # After a rollback a step has a second line, which counts.
    steps = {line["step"]: _flat_metrics(line) for line in map(json.loads, lines) if "event" not in line}
    names = dict.fromkeys(name for fields in steps.values() for name in fields)
    return {name: _array(name, [steps[step].get(name) for step in sorted(steps)]) for name in names}


_ERROR = "tessera: "
_RUN_FOLDER = re.compile(r"(.+?)(?:, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d| is complete: .*)")
_STEP = re.compile(r"\d\d:\d\d:\d\d +\d+/\d+ ")
_COUNT = re.compile(r"step|tokens|slowest_rank|peak_rank|peak_bytes\..*|memory_retries|idle_experts")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class _Progress:
    """Prints the program's lines. In a terminal or notebook each line of a step replaces the one before."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown
        self.in_place = sys.stdout.isatty() or type(sys.stdout).__module__.startswith("ipykernel")
        self.width = 0  # of a step's line that is still open

    def line(self, text: str) -> None:
        if not self.shown:
            return
        is_step = self.in_place and _STEP.match(text)
        if is_step and self.width:
            text = "\r" + text.ljust(self.width)
        elif self.width:
            text = "\n" + text
        self.width = len(text.strip("\r\n")) if is_step else 0
        print(text, end="" if is_step else "\n", flush=True)

    def finish(self) -> None:
        if self.width:
            print(flush=True)
        self.width = 0


def _find_program() -> str:
    if program is not None:
        return os.fspath(program)
    scripts = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    found = shutil.which("tessera", path=os.pathsep.join(scripts)) or shutil.which("tessera")
    if not found:
        raise Error("the program tessera is neither among this Python's scripts nor on PATH; set tessera.program")
    return found


def _stop_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _start(arguments: Sequence[str], stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """In a session of its own, where Ctrl-C reaches this Python alone, which passes it on."""
    path = _find_program()
    try:
        return subprocess.Popen([path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                                encoding="utf-8", errors="replace", start_new_session=True,
                                preexec_fn=_stop_with_parent)
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None


def _read_lines(process: subprocess.Popen[str], see: Callable[[str], None]) -> bool:
    """Calls `see` with each line of the program until its end. Passes every Ctrl-C on; was there one?"""
    assert process.stdout
    interrupted = False
    while True:
        try:
            for line in process.stdout:
                see(line.rstrip("\n"))
            process.wait()
            return interrupted
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)


def _check_status(status: int, lines: Iterable[str]) -> None:
    if status == 0:
        return
    said = [line for line in lines if line.strip()]
    errors = [line[len(_ERROR):] for line in said if line.startswith(_ERROR)]
    if status < 0:
        raise Error(f"the program was ended by {signal.Signals(-status).name}")
    raise Error(errors[-1] if errors else " ".join(said) or f"the program ended with status {status}")


def _json(arguments: Sequence[str]) -> List[Dict[str, Any]]:
    """The lines of JSON that a command prints."""
    with _start(arguments) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    _check_status(process.returncode, err.splitlines())
    sys.stderr.write(err)
    return [json.loads(line) for line in out.splitlines()]


def _json_with_file(arguments: Sequence[str], option: str, content: Any) -> List[Dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        path = os.path.join(folder, "input.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        return _json([*arguments, option, path])


def _options(**values: Any) -> List[str]:
    """--name=value of those that are not None."""
    return [f"--{name.replace('_', '-')}={_text(value)}" for name, value in values.items() if value is not None]


def _settings(config: Config, overrides: Optional[Mapping[str, Any]], sections: Mapping[str, Any]) -> List[str]:
    """The arguments of a command: a file and key=value. A dictionary's file is empty."""
    keys: Dict[str, Any] = {}
    for given in (config if isinstance(config, Mapping) else {}, overrides or {}, sections):
        keys.update(_flat(given))
    name = os.devnull if isinstance(config, Mapping) else os.fspath(config)
    return [name, *(f"{key}={_text(value)}" for key, value in keys.items())]


def _flat(values: Mapping[str, Any]) -> Dict[str, Any]:
    """{"train": {"steps": 2}} as {"train.steps": 2}."""
    flat: Dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": inner for key, inner in _flat(value).items()})
        else:
            flat[name] = value
    return flat


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _ids(row: Ids) -> List[int]:
    return [operator.index(token) for token in row]


def _flat_metrics(line: Mapping[str, Any]) -> Dict[str, Any]:
    return _flat({name: dict(enumerate(value)) if isinstance(value, list) else value
                  for name, value in line.items()})


def _array(name: str, values: List[Any]) -> np.ndarray:
    if name == "time":
        return np.array(values)
    if _COUNT.fullmatch(name) and None not in values:
        return np.array(values, np.int64)
    return np.array([np.nan if value is None else value for value in values], np.float64)
