'use strict';
// What happens in a step, and when: the step player without its page (docs/playing.md).
//
// `tessera plan --trace` writes the log of a step under the key "step" (tools/plan/predicted_trace.cpp): the entries of
// each stream with their times and waits, spans by numbers of entries, the slots of each bucket, and the bytes at
// the end of each span. schedule() gives each entry its time, as the virtual clock does (sharding/plan/virtual_clock.h)
// on a machine whose streams share no cores. A wait that is removed ends at once.

const kCommunication = 'communication', kCompute = 'compute';

/// The step of a trace, with times in microseconds. A bucket's name has those of its units: "h.0+h.1".
function readStep({ entries, spans, categories, value_slots: values, gradient_slots: gradients }) {
  const names = [...new Set([...Object.keys(values), ...Object.keys(gradients)])];
  return {
    entries: entries.map(({ stream, seconds, waits_for: awaited }) =>
      awaited === undefined ? { stream, us: 1e6 * seconds } : { stream, waits_for: awaited }),
    spans: spans.map((span) => ({ ...span, mark: span.instant })),
    buckets: names.map((name) => ({ name, units: name.split('+'), gather_slot: values[name] ?? null,
      gradient_slot: gradients[name] ?? null })),
    categories,
  };
}

/// The begin and the end of every entry, in microseconds.
function schedule(step, removed = new Set()) {
  const times = [], last = {};
  step.entries.forEach((entry, index) => {
    const begin = last[entry.stream] ?? 0;
    const awaited = entry.waits_for >= 0 && !removed.has(index) ? times[entry.waits_for].end : 0;
    const end = entry.us === undefined ? Math.max(begin, awaited) : begin + entry.us;
    times.push({ begin, end });
    last[entry.stream] = end;
  });
  return times;
}

/// Each stream's entries.
function lanesOf(step) {
  const lanes = {};
  step.entries.forEach((entry, index) => (lanes[entry.stream] ??= []).push(index));
  return lanes;
}

/// The spans and marks with their times, in the log's order: the events of the program's own trace.
function eventsOf(step, times) {
  const lanes = lanesOf(step);
  return step.spans.map((span) => {
    const lane = lanes[span.stream] ?? [];
    const inside = lane.filter((index) => index >= span.begin && index < span.end);
    const before = lane.filter((index) => index < span.begin).at(-1);
    const idle = before === undefined ? 0 : times[before].end;
    const begin = inside.length ? times[inside[0]].begin : idle;
    const end = inside.length ? times[inside.at(-1)].end : begin;
    return { ...span, first: span.begin, behind: span.end, inside, begin, end };
  });
}

const kGathers = ['all_gather', 'broadcast'], kSums = ['reduce_scatter', 'all_reduce', 'reduce'];
/// "gather", "reduce" or "other" for the span of a collective.
function kindOfCollective(name) {
  const [call, what] = split(name);
  if (!what || what === 'loss' || what === 'gradient norm') return 'other';
  return kGathers.includes(call) ? 'gather' : kSums.includes(call) ? 'reduce' : 'other';
}

/// "open gradients h.0" -> ["open gradients", "h.0"].
function split(name) {
  const [, what, unit] = /^(open gradients|\S+) ?(.*)$/.exec(name);
  return [what, unit];
}

/// Reads and writes of memory that streams share, each by one entry. Memory is named "slot 0", "gradient slot
/// 1", "values of h.0" (whole on each rank), "own part of h.0", "sum of h.0" and "norm".
function accessesOf(step) {
  const bucketOf = new Map(), named = new Map();
  for (const bucket of step.buckets) {
    named.set(bucket.name, bucket);
    for (const unit of bucket.units) bucketOf.set(unit, bucket);
  }
  const values = (bucket) => bucket.gather_slot === null ? `values of ${bucket.name}` : `slot ${bucket.gather_slot}`;
  const gradients = (bucket) => `gradient slot ${bucket.gradient_slot}`;
  const own = (bucket) => `own part of ${bucket.name}`, sum = (bucket) => `sum of ${bucket.name}`;
  const found = [];
  const add = (entry, memory, writes, bucket, pass) =>
    found.push({ entry, memory, writes, bucket: bucket?.name ?? '', stream: step.entries[entry].stream, pass });
  const works = (index, stream) => step.entries[index].stream === stream && step.entries[index].us !== undefined;
  const range = (begin, end, stream) => {
    const list = [];
    for (let i = begin; i < end; ++i) if (works(i, stream)) list.push(i);
    return list;
  };
  const units = step.spans.filter((span) => /^(forward|backward) ./.test(span.name));
  for (const span of units) {
    const [pass, unit] = split(span.name), bucket = bucketOf.get(unit);
    if (!bucket) continue;
    // A head computes its gradients in forward, behind the mark that opens them.
    const opened = step.spans.find((one) => one.mark && one.name === `open gradients ${bucket.name}` &&
      one.begin >= span.begin && one.begin < span.end);
    for (const entry of range(span.begin, span.end, kCompute)) {
      add(entry, values(bucket), false, bucket, pass);
      if (pass === 'backward' || (opened && entry >= opened.begin)) add(entry, gradients(bucket), true, bucket);
    }
  }
  // What a mark "gather" or "reduce" queues follows it without an entry of computation.
  const marks = step.spans.filter((span) => span.mark && /^(gather|reduce) /.test(span.name));
  const assigned = new Set();
  marks.forEach((mark, number) => {
    const [what, name] = split(mark.name), bucket = named.get(name);
    const last = Math.min(marks[number + 1]?.begin ?? Infinity, step.entries.length);
    for (let i = mark.begin; i < last && step.entries[i].stream === kCommunication; ++i) {
      if (!works(i, kCommunication)) continue;
      assigned.add(i);
      add(i, what === 'gather' ? values(bucket) : gradients(bucket), true, bucket);
      add(i, what === 'gather' ? own(bucket) : sum(bucket), what !== 'gather', bucket);
    }
  });
  // Values that are whole on each rank are gathered behind the update, without a mark.
  const spans = step.spans.filter((span) => !span.mark);
  for (const span of spans) {
    const [, name] = split(span.name);
    if (kindOfCollective(span.name) !== 'gather') continue;
    for (const i of range(span.begin, span.end, kCommunication)) {
      if (assigned.has(i)) continue;
      add(i, values(named.get(name)), true, named.get(name));
      add(i, own(named.get(name)), false, named.get(name));
    }
  }
  const norm = spans.find((span) => span.name === 'all_reduce gradient norm');
  if (norm) for (const i of range(norm.begin, norm.end, kCommunication)) add(i, 'norm', true);
  for (const span of spans.filter((one) => one.name === 'optimizer')) {
    for (const i of range(span.begin, span.end, kCompute)) {
      const update = !norm || i >= norm.end;
      add(i, 'norm', !update);
      for (const bucket of step.buckets) {
        add(i, sum(bucket), false, bucket);
        if (!update) continue;
        add(i, own(bucket), true, bucket);
        if (bucket.gather_slot === null) add(i, values(bucket), true, bucket);
      }
    }
  }
  return found.sort((a, b) => a.entry - b.entry);
}

/// For each entry, how many entries of each stream have ended for certain before it begins.
function certainBefore(step, removed = new Set()) {
  const streams = Object.keys(lanesOf(step)), last = {}, known = [];
  step.entries.forEach((entry, index) => {
    const here = { ...(last[entry.stream] ?? Object.fromEntries(streams.map((stream) => [stream, -1]))) };
    if (entry.waits_for >= 0 && !removed.has(index)) {
      const awaited = step.entries[entry.waits_for].stream;
      const theirs = { ...known[entry.waits_for], [awaited]: entry.waits_for };
      for (const stream of streams) here[stream] = Math.max(here[stream], theirs[stream]);
    }
    known.push({ ...here });
    here[entry.stream] = index;
    last[entry.stream] = here;
  });
  return known;
}

/// Pairs of accesses that no wait orders: one of the two writes. The program's order says which comes first.
/// A pair is `wrong` if the second begins before the first has ended, and a matter of luck otherwise.
function hazardsOf(step, times, removed = new Set(), accesses = accessesOf(step)) {
  const before = certainBefore(step, removed), byMemory = new Map(), found = [];
  for (const access of accesses) {
    const earlier = byMemory.get(access.memory) ?? [];
    for (const one of earlier) {
      if (one.stream === access.stream || !(one.writes || access.writes)) continue;
      if (before[access.entry][one.stream] >= one.entry) continue;
      found.push({ first: one, second: access, memory: access.memory,
        wrong: times[access.entry].begin < times[one.entry].end - 1e-9 });
    }
    earlier.push(access);
    byMemory.set(access.memory, earlier);
  }
  return found;
}

/// The waits of one stream for another; `guards` has the pairs of accesses that this wait alone orders.
function waitsOf(step, accesses = accessesOf(step)) {
  const times = schedule(step), found = [];
  step.entries.forEach((entry, index) => {
    if (entry.us !== undefined || !(entry.waits_for >= 0)) return;
    if (step.entries[entry.waits_for].stream === entry.stream) return;
    found.push({ entry: index, stream: entry.stream, waitsFor: entry.waits_for,
      guards: hazardsOf(step, times, new Set([index]), accesses) });
  });
  return found;
}

/// The name of the span that an entry belongs to: the innermost one.
function nameOf(step, index) {
  const stream = step.entries[index].stream;
  const around = step.spans.filter((span) => !span.mark && span.stream === stream && span.begin <= index &&
    index < span.end && span.name !== 'exposed communication');
  if (around.length) return around.reduce((a, b) => (a.end - a.begin <= b.end - b.begin ? a : b)).name;
  const marks = step.spans.filter((span) => span.mark && /^(gather|reduce) /.test(span.name) && span.begin <= index);
  return marks.length ? `copies of ${marks.at(-1).name}` : 'the step';
}

/// One sentence on a pair that is out of order.
function sentenceOf(step, { first, second, memory }) {
  const sends = first.stream === kCommunication && memory.startsWith('gradient slot');
  const done = sends ? 'sent' : first.writes ? 'written' : 'read';
  return `${nameOf(step, second.entry)} ${second.writes ? 'writes' : 'reads'} ${memory} before ` +
    `${nameOf(step, first.entry)} has ${done} it`;
}

/// The pairs as a reader sees them: one for each span that comes too early and each memory. Of a gather's
/// entries the collective itself counts, not its copies.
function findingsOf(step, times, hazards) {
  const found = new Map();
  for (const hazard of hazards) {
    const key = `${nameOf(step, hazard.second.entry)}@${hazard.second.bucket}@${hazard.memory}`;
    const before = found.get(key) ?? { pairs: [], wrong: false, until: 0 };
    before.pairs.push(hazard);
    before.wrong ||= hazard.wrong;
    before.until = Math.max(before.until, times[hazard.first.entry].end);
    found.set(key, before);
  }
  return [...found.values()].map(({ pairs, wrong, until }) => {
    const rank = ({ first, wrong: bad }) => (bad ? 2 : 0) + (nameOf(step, first.entry).startsWith('copies') ? 0 : 1);
    const told = pairs.reduce((a, b) => (rank(b) > rank(a) ? b : a));
    const entry = Math.min(...pairs.map((pair) => pair.second.entry)), { begin, end } = times[entry];
    return { text: sentenceOf(step, told), wrong, memory: told.memory, entry, name: nameOf(step, entry),
      stream: told.second.stream, begin, end: wrong ? Math.min(end, until) : end };
  });
}

/// What each slot holds: intervals with a bucket and a state.
function slotsOf(step, times, accesses = accessesOf(step)) {
  const rows = new Map();
  for (const access of accesses) {
    if (!/^(gradient )?slot /.test(access.memory)) continue;
    const row = rows.get(access.memory) ?? [];
    rows.set(access.memory, row);
    const { begin, end } = times[access.entry];
    const state = access.stream === kCommunication ? 'travels' : access.writes ? 'written'
      : `read in ${access.pass}`;
    const last = row.at(-1);
    if (last && last.bucket === access.bucket && last.state === state && begin <= last.end + 1e-9) {
      last.end = Math.max(last.end, end);
    } else {
      row.push({ bucket: access.bucket, state, begin, end });
    }
  }
  const number = (name) => (name.startsWith('gradient') ? 1000 : 0) + Number(name.split(' ').at(-1));
  return [...rows].sort(([a], [b]) => number(a) - number(b)).map(([name, uses]) => ({ name, uses }));
}

/// Bytes by category at the end of each span, in order of time: {time, bytes}.
function memoryOf(events) {
  const found = events.map(({ end, held }) => ({ time: end, bytes: held }));
  found.sort((a, b) => a.time - b.time);
  return [{ ...found[0], time: 0 }, ...found];
}

if (typeof module !== 'undefined') {
  module.exports = { schedule, eventsOf, accessesOf, hazardsOf, waitsOf, slotsOf, memoryOf, findingsOf, nameOf,
    readStep };
}
