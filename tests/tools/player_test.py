#!/usr/bin/env python3
"""The step player's scheduler against the program's own: times, hazards, and waits that are removed.

  tests/tools/player_test.py build/bin/tessera [--calculator build/calculator/calculator.js] [--count 50] [--seed 1]

The player's code runs under node on random values of its switches. Its events must be the program's own trace: the same
names in the same order at the same times. With all waits no access may be out of order, whatever the speeds. Then waits are
removed, and the right access must be marked. With --calculator the player's steps come from the program compiled to
WebAssembly, as on the site; the trace is this machine's in any case. Without node only the lines of the rungs are checked.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/site/player"))
import player_code  # noqa: E402: the path comes first

CLOSE = 1e-6  # microseconds

# For each line of JSON on its input, node answers with a line.
DRIVER = """
const fs = require('fs'), folder = process.argv[1], calculator = process.argv[2];
process.setMaxListeners(0); // each program adds its own
const model = require(`${folder}/model.js`), settings = require(`${folder}/settings.js`);
async function compiled(values) {
  const program = await require(calculator)({ print: () => {}, printErr: () => {}, noInitialRun: true });
  program.FS.writeFile('/machine.json', settings.machineText(values));
  program.callMain([...settings.planArguments(values, '/machine.json'), '--json', '--trace', '/trace.json']);
  return model.readStep(JSON.parse(program.FS.readFile('/trace.json', { encoding: 'utf8' })).step);
}
// Whether all accesses that come in the wrong order are among the found ones, in steps whose work takes other times.
function missed(step, accesses, without, hazards, seed) {
  const known = new Set(hazards.map(({ first, second }) => `${first.entry} ${second.entry} ${second.memory}`));
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let turn = 0; turn < 4; ++turn) {
    const pace = { compute: 4 ** (4 * random() - 2), communication: 4 ** (4 * random() - 2) };
    const entries = step.entries.map((one) => one.us === undefined ? one
      : { ...one, us: (one.us + 1) * pace[one.stream] * random() });
    const times = model.schedule({ ...step, entries }, without);
    for (const [number, second] of accesses.entries()) {
      for (const first of accesses.slice(0, number)) {
        if (first.memory !== second.memory || !(first.writes || second.writes)) continue;
        const early = times[second.entry].begin < times[first.entry].end - 1e-9 && first.entry !== second.entry;
        if (early && !known.has(`${first.entry} ${second.entry} ${second.memory}`)) return true;
      }
    }
  }
  return false;
}
const answers = {
  switches: () => [settings.firstValues(), settings.kSwitches.map(([name, , choices]) => [name, choices])],
  arguments: ({ values, machine }) => {
    fs.writeFileSync(machine, settings.machineText(values));
    return settings.planArguments(values, machine);
  },
  step: async ({ values, trace }) => {
    const step = calculator ? await compiled(values) : model.readStep(JSON.parse(fs.readFileSync(trace)).step);
    const times = model.schedule(step), named = (entry) => model.nameOf(step, entry);
    const accesses = model.accessesOf(step), all = model.hazardsOf(step, times);
    const removed = model.waitsOf(step).map((wait) => {
      const without = new Set([wait.entry]), later = model.schedule(step, without);
      const hazards = model.hazardsOf(step, later, without), found = model.findingsOf(step, later, hazards);
      const spans = model.eventsOf(step, later).filter((one) => !one.mark);
      return { stream: wait.stream, waitsFor: named(wait.waitsFor), guards: wait.guards.length, found, spans,
        missed: missed(step, accesses, without, hazards, 1 + wait.entry) };
    });
    return { events: model.eventsOf(step, times), removed, hazards: all.length,
      missed: missed(step, accesses, new Set(), all, 7), accesses: accesses.length };
  },
};
let lines = '';
process.stdin.on('data', (more) => { lines += more; });
process.stdin.on('end', async () => {
  const out = [];
  for (const line of lines.split('\\n').filter(Boolean)) {
    const request = JSON.parse(line);
    out.push(JSON.stringify(await answers[request.ask](request)));
  }
  fs.writeSync(1, out.join('\\n') + '\\n');
  process.exit(0); // a program of WebAssembly may have set another status
});
"""

# By strategy: switches of a step in which a missing wait shows, the wait (the stream that waits and what it waits for), and
# what must be marked.
FAST_LINK, SLOW_LINK = {"bandwidth": "900", "tokens": "1024"}, {"bandwidth": "50", "tokens": "128"}
PLANTED = {
    "ddp": (FAST_LINK, "communication", "backward h.2",
            "all_reduce h.2 writes gradient slot 3 before backward h.2 has written it"),
    "zero1": (FAST_LINK, "communication", "backward h.2",
              "reduce_scatter h.2 writes gradient slot 3 before backward h.2 has written it"),
    "zero2": (SLOW_LINK, "compute", r"(reduce_scatter|copies of reduce) h.3",
              "backward h.1 writes gradient slot 0 before reduce_scatter h.3 has sent it"),
    "zero3": (SLOW_LINK, "compute", "broadcast h.1", "forward h.1 reads slot 0 before broadcast h.1 has written it"),
    "fsdp": (SLOW_LINK, "compute", "all_gather h.1", "forward h.1 reads slot 0 before all_gather h.1 has written it"),
    "hsdp": (SLOW_LINK, "compute", "all_gather h.1", "forward h.1 reads slot 0 before all_gather h.1 has written it"),
}


# The argument, or the part of the machine file, that a switch's last value stands for.
ARGUMENTS = {"strategy": "sharding.strategy=hsdp", "ranks": "8", "nodes": "2", "blocks": "model.layers=8",
             "unit": "sharding.buckets=embedding,h.0", "live": "sharding.live_gathers=4", "prefetch": "sharding.prefetch=none",
             "reshard": "sharding.reshard_after_forward=false", "tokens": "data.rows_per_rank=16",
             "micro": "data.accumulation_steps=4", "checkpointing": "sharding.activation_checkpointing=full",
             "bandwidth": '"bytes_per_second":900000000000', "latency": '"latency_us":50'}


def problems_of_switches(player, switches, first):
    """Each switch must set its own key or rate."""
    if [name for name, _ in switches] != list(ARGUMENTS):
        return [f"the switches {[name for name, _ in switches]}; expected {list(ARGUMENTS)}"]
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for name, choices in switches:
            machine = pathlib.Path(folder) / "machine.json"
            words = player.ask([{"ask": "arguments", "values": first | {name: choices[-1]}, "machine": str(machine)}])[0]
            if ARGUMENTS[name] not in words and ARGUMENTS[name] not in machine.read_text():
                problems.append(f"the switch {name}={choices[-1]} does not give {ARGUMENTS[name]}")
    return problems


class Player:
    def __init__(self, calculator):
        self.command = ["node", "-e", DRIVER, str(ROOT / "tools/site/player"), calculator and str(pathlib.Path(calculator).resolve())]
        self.command = [one for one in self.command if one]

    def ask(self, requests):
        text = "".join(json.dumps(one) + "\n" for one in requests)
        done = subprocess.run(self.command, input=text, stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


def traced(program, words, trace):
    """The events of the program's own trace; None for a configuration that it refuses."""
    done = subprocess.run([program, *words, "--trace", trace], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode != 0:
        return None
    events = json.loads(pathlib.Path(trace).read_text())["traceEvents"]
    return [event for event in events if event["ph"] != "M"]


def difference(ours, theirs):
    """The first event that is another one, or at another time; None for equal ones."""
    if [one["name"] for one in ours] != [one["name"] for one in theirs]:
        return f"other events: {len(ours)} of the player and {len(theirs)} of the program"
    for one, event in zip(ours, theirs):
        begin, end = event["ts"], event["ts"] + event.get("dur", 0.0)
        if abs(one["begin"] - begin) > CLOSE or abs(one["end"] - end) > CLOSE:
            return f"{one['name']}: {one['begin']} to {one['end']}; the program has {begin} to {end}"
    return None


def problems_of_step(values, answer, theirs):
    place = " ".join(f"{name}={value}" for name, value in values.items())
    found = [difference(answer["events"], theirs)]
    if answer["hazards"]:
        found.append(f"{answer['hazards']} accesses are out of order with all waits")
    if not answer["accesses"]:
        found.append("no accesses")
    if answer["missed"]:
        found.append("at other speeds an access is out of order with all waits")
    for one in answer["removed"]:
        if one["missed"]:
            found.append(f"without the wait for {one['waitsFor']} an access can be out of order and is not found")
        if bool(one["guards"]) != bool(one["found"]):
            found.append(f"the wait for {one['waitsFor']} guards {one['guards']} and marks {len(one['found'])}")
    return [f"{place}: {problem}" for problem in found if problem]


def problems_of_planted(strategy, answer):
    """The missing wait must be marked, where the event that came too early begins; elsewhere nothing."""
    _, stream, awaited, text = PLANTED[strategy]
    waits = [one for one in answer["removed"] if one["stream"] == stream and re.fullmatch(awaited, one["waitsFor"])]
    if not waits:
        return [f"{strategy}: no wait of {stream} for {awaited}"]
    wrong = [one for one in waits[0]["found"] if one["wrong"]]
    if [one["text"] for one in wrong] != [text]:
        return [f"{strategy}: marked {[one['text'] for one in wrong]}; expected {text!r}"]
    name, number = text.split(" ")[0:2], wrong[0]["begin"]
    begun = [span["begin"] for span in waits[0]["spans"] if span["name"] == " ".join(name)]
    return [] if any(abs(one - number) < CLOSE for one in begun) else [f"{strategy}: marked at {number}, not in {begun}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--calculator")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    player_code.code()  # ends with a line if an event has no line in its rung
    if not shutil.which("node"):
        print("skipped: node is not on PATH")
        return 77
    program, player, rng = str(pathlib.Path(options.program).resolve()), Player(options.calculator), random.Random(options.seed)
    first, switches = player.ask([{"ask": "switches"}])[0]
    draws = [first | {"strategy": strategy} | planted[0] for strategy, planted in PLANTED.items()]
    draws += [{name: rng.choice(choices) for name, choices in switches} for _ in range(2 * options.count)]
    problems, requests, kept, traces = problems_of_switches(player, switches, first), [], [], []
    with tempfile.TemporaryDirectory() as folder:
        places = [(f"{folder}/machine{number}.json", f"{folder}/trace{number}.json") for number in range(len(draws))]
        words = player.ask([{"ask": "arguments", "values": values, "machine": place[0]} for values, place in zip(draws, places)])
        for values, place, command in zip(draws, places, words):
            if len(kept) == len(PLANTED) + options.count:
                break
            events = traced(program, command, place[1])
            if events is None:
                continue
            kept.append(values)
            traces.append(events)
            requests.append({"ask": "step", "values": values, "trace": place[1]})
        answers = player.ask(requests)
    if len(kept) < len(PLANTED) + options.count:
        problems.append(f"the program takes only {len(kept)} of {len(draws)} configurations")
    for values, answer, events in zip(kept, answers, traces):
        problems += problems_of_step(values, answer, events)
    for strategy, answer in zip(PLANTED, answers):
        problems += problems_of_planted(strategy, answer)
    waits = sum(len(answer["removed"]) for answer in answers)
    print("\n".join([f"{len(kept)} steps, {waits} waits removed one by one", *problems]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
