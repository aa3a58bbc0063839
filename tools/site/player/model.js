'use strict';
// The step that the player plays: its entries, their times, and what goes wrong without a wait.
//
// `tessera plan --trace` writes the step's log (tools/plan/predicted_trace.cpp). An entry is work of so many seconds or a
// wait for an earlier entry; the entries of a stream run in order. This is the virtual clock of a machine whose ranks have
// a GPU each (sharding/plan/virtual_clock.h), so a step can be timed again without some of its waits.

const kCompute = 'compute', kCommunication = 'communication';
const kTiny = 1e-12; // seconds

/// Begin and end of each entry, in seconds. `removed` has the numbers of waits that do not wait.
function timesOf(step, removed = new Set()) {
  const now = new Map();
  const times = [];
  step.entries.forEach((entry, number) => {
    const begin = now.get(entry.stream) ?? 0;
    let end = begin + entry.seconds;
    if (entry.waits_for >= 0 && !removed.has(number)) end = Math.max(end, times[entry.waits_for].end);
    times.push({ begin, end });
    now.set(entry.stream, end);
  });
  return times;
}

/// The numbers of each stream's entries, in order.
function lanesOf(step) {
  const lanes = new Map();
  step.entries.forEach(({ stream }, number) => {
    if (!lanes.has(stream)) lanes.set(stream, []);
    lanes.get(stream).push(number);
  });
  return lanes;
}

/// The spans and marks with their times, as records_of (virtual_clock.cpp) makes them.
function eventsOf(step, times) {
  const lanes = lanesOf(step);
  return step.spans.map((span, number) => {
    const lane = lanes.get(span.stream) ?? [];
    const inside = lane.filter((one) => one >= span.begin && one < span.end);
    const before = lane.findLast((one) => one < span.begin);
    const idle = before === undefined ? 0 : times[before].end;
    const begin = inside.length ? times[inside[0]].begin : idle;
    const end = inside.length ? times[inside.at(-1)].end : begin;
    return { number, name: span.name, stream: span.stream, instant: span.instant, begin, end, held: span.held };
  });
}

/// "open gradients h.1" -> { kind: "open gradients", unit: "h.1" }.
function partsOf(name) {
  const [, kind, unit] = name.match(/^(open gradients|\S+) ?(.*)$/);
  return { kind, unit };
}

/// Each stretch of entries of one stream that reads or writes one piece of memory, in the order of the program.
///
/// Pieces: "value slot 0", "gradient slot 1" or "gradients of h.0" (in memory that no other unit uses), "sums of h.0", and
/// "masters of h.0". In strategies without slots of values the values are the masters.
function accessesOf(step) {
  const accesses = [];
  const marks = step.spans.filter((span) => span.instant);
  const work = (stream, begin, end) => step.entries.flatMap((entry, number) =>
    entry.stream === stream && number >= begin && number < end && entry.waits_for === undefined ? [number] : []);
  const add = (stream, begin, end, unit, does, pieces) => {
    const entries = work(stream, begin, end);
    if (!entries.length) return;
    for (const [piece, writes] of pieces) {
      accesses.push({ piece, writes, unit, does, stream, first: entries[0], last: entries.at(-1) });
    }
  };
  const values = (unit) => (unit in step.value_slots ? `value slot ${step.value_slots[unit]}` : `masters of ${unit}`);
  const shared = Object.values(step.gradient_slots).length !== new Set(Object.values(step.gradient_slots)).size;
  const gradients = (unit) => (shared ? `gradient slot ${step.gradient_slots[unit]}` : `gradients of ${unit}`);
  const sums = (unit) => (shared ? `sums of ${unit}` : `gradients of ${unit}`);
  const next = (index, kind, unit) =>
    marks.slice(index + 1).find((mark) => partsOf(mark.name).kind === kind && partsOf(mark.name).unit === unit);
  const units = [...new Set([...Object.keys(step.gradient_slots), ...Object.keys(step.value_slots)])];

  marks.forEach((mark, index) => {
    const { kind, unit } = partsOf(mark.name);
    // Communication that this mark has queued ends at the next mark that queues some.
    const queued = marks.slice(index + 1).find((one) => ['gather', 'reduce'].includes(partsOf(one.name).kind));
    const stop = Math.min(queued?.begin ?? step.entries.length, endOfRun(step, mark.begin));
    if (kind === 'gather') {
      add(kCommunication, mark.begin, stop, unit, 'gathers', [[values(unit), true], [`masters of ${unit}`, false]]);
    } else if (kind === 'open') {
      add(kCompute, mark.begin, next(index, 'close', unit)?.begin ?? mark.begin, unit, 'computes with', [[values(unit), false]]);
    } else if (kind === 'open gradients') {
      add(kCompute, mark.begin, next(index, 'reduce', unit)?.begin ?? mark.begin, unit, 'writes gradients of',
        [[gradients(unit), true]]);
    } else if (kind === 'reduce') {
      add(kCommunication, mark.begin, stop, unit, 'reduces', [[gradients(unit), !shared], [sums(unit), true]]);
    }
  });
  for (const span of step.spans) {
    if (span.name === 'optimizer') {
      for (const unit of units) {
        add(kCompute, span.begin, span.end, unit, 'updates', [[sums(unit), false], [`masters of ${unit}`, true]]);
      }
    }
    // ZeRO-1 and ZeRO-2 gather the new values without a mark.
    const { kind, unit } = partsOf(span.name);
    if (span.stream === kCommunication && kind === 'all_gather' && !(unit in step.value_slots) && units.includes(unit)) {
      add(kCommunication, span.begin, span.end, unit, 'gathers', [[values(unit), true]]);
    }
  }
  return accesses.sort((a, b) => a.first - b.first);
}

/// The first entry from `begin` on that is not communication and stands behind some.
function endOfRun(step, begin) {
  let number = begin;
  while (number < step.entries.length && step.entries[number].stream !== kCommunication) ++number;
  while (number < step.entries.length && step.entries[number].stream === kCommunication) ++number;
  return number;
}

/// For each entry and stream: the last entry of the stream that has ended, in every timing, before this one begins; -1 for
/// none. These are vector clocks (Fidge 1988, Mattern 1989), with waits as the messages.
function clocksOf(step, removed) {
  const streams = [...new Set(step.entries.map((entry) => entry.stream))];
  const last = new Map(); // the newest entry of a stream
  const clocks = [];
  const join = (clock, number) => {
    for (const stream of streams) clock.set(stream, Math.max(clock.get(stream), clocks[number].get(stream)));
    clock.set(step.entries[number].stream, Math.max(clock.get(step.entries[number].stream), number));
  };
  step.entries.forEach((entry, number) => {
    const clock = new Map(streams.map((stream) => [stream, -1]));
    clocks.push(clock);
    if (last.has(entry.stream)) join(clock, last.get(entry.stream));
    if (entry.waits_for >= 0 && !removed.has(number)) join(clock, entry.waits_for);
    last.set(entry.stream, number);
  });
  return clocks;
}

/// Races: accesses that no wait orders: { at, piece, unit, text, wrong }, the first ones first. Two accesses of different
/// streams to one piece of memory keep the order of the program if one of them writes. `wrong`: with these times the later
/// access comes too early. Otherwise it is right by luck.
function racesOf(step, times, removed = new Set(), accesses = accessesOf(step)) {
  const clocks = clocksOf(step, removed);
  const races = [];
  accesses.forEach((late, index) => {
    const racing = accesses.slice(0, index).filter((one) => one.piece === late.piece && one.stream !== late.stream &&
      (one.writes || late.writes) && clocks[late.first].get(one.stream) < one.last);
    const early = racing.find((one) => times[one.last].end > times[late.first].begin + kTiny) ?? racing[0];
    if (!early) return;
    races.push({ at: times[late.first].begin, piece: late.piece, unit: late.unit, early, late, text: inWords(late, early),
      wrong: times[early.last].end > times[late.first].begin + kTiny });
  });
  return races.sort((a, b) => b.wrong - a.wrong || a.at - b.at);
}

/// A race in words.
function inWords({ does, unit, stream }, early) {
  switch (`${does} after ${early.does}`) {
    case 'computes with after gathers': return `computation reads values of ${unit} that have not arrived yet`;
    case 'gathers after computes with': return `values of ${unit} arrive over those of ${early.unit}, which are in use`;
    case 'writes gradients of after reduces': return `backward writes gradients of ${unit} over those of ${early.unit}, which are being sent`;
    case 'reduces after writes gradients of': return `gradients of ${unit} are sent before they are complete`;
    case 'updates after reduces': return `${unit} is updated with sums that are not complete yet`;
    case 'gathers after updates': return `values of ${unit} are sent while they are being updated`;
    case 'updates after gathers': return `values of ${unit} are updated while they are being sent`;
    default: return `${stream} ${does} ${unit} before it ${early.does} ${early.unit}`;
  }
}

/// The waits of one stream for another: { entry, stream, text }, in the order of the program.
function waitsOf(step) {
  const transfers = step.spans.filter((span) => !span.instant && span.stream === kCommunication);
  return step.entries.flatMap((entry, number) => {
    if (!(entry.waits_for >= 0) || step.entries[entry.waits_for].stream === entry.stream) return [];
    const mark = step.spans.find((span) => span.instant && span.stream === entry.stream && span.begin === number + 1);
    const { kind, unit } = partsOf(mark?.name ?? 'none');
    const awaited = transfers.findLast((span) => span.begin <= entry.waits_for)?.name ?? 'communication';
    const waiting = transfers.find((span) => span.begin >= number)?.name ?? 'communication';
    const text = entry.stream !== kCompute ? `${waiting} waits for computation`
      : kind === 'open' ? `computation waits for the values of ${unit}`
        : kind === 'open gradients' ? `backward of ${unit} waits for its gradient slot` : `computation waits for ${awaited}`;
    return [{ entry: number, stream: entry.stream, text }];
  });
}

if (typeof module !== 'undefined') module.exports = { timesOf, eventsOf, accessesOf, racesOf, waitsOf, partsOf };
