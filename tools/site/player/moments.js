'use strict';
// The moments that a reader steps through, each with a sentence and the line of a rung that causes it.

/// The kind of line (tools/site/player/rungs.py) behind an event, or null where the rungs have none.
function lineKind(step, event, number) {
  const [what, unit] = split(event.name);
  if (['forward', 'backward', 'optimizer', 'open', 'close', 'open gradients'].includes(what)) return what;
  if (event.mark && what === 'reduce') return 'reduce';
  if (event.mark && what === 'gather') {
    // A gather that a unit needs at once comes right before the unit is opened.
    const next = step.spans.slice(number + 1).find((span) => span.mark);
    return next?.name === `open ${unit}` ? 'needed' : 'prefetch';
  }
  if (event.name === 'exposed communication') {
    const next = step.spans[number + 1];
    if (next?.mark && next.name.startsWith('open gradients')) return 'sent';
    return step.spans.slice(number + 1).some((span) => /^forward .|^backward ./.test(span.name) &&
      span.begin <= event.first && span.end >= event.behind) ? 'ready' : 'last wait';
  }
  const kind = kindOfCollective(event.name);
  if (kind === 'other') return null;
  return kind === 'reduce' && what === 'all_reduce' && step.spans.some((span) => span.name === `reduce_scatter ${unit}`)
    ? 'replicas' : kind;
}

const kSentences = {
  gather: (unit) => `The gather of ${unit} is queued`, reduce: (unit) => `The reduction of ${unit} is queued`,
  open: (unit) => `${unit} opens: its values are there`, close: (unit) => `${unit} closes: its slot may be written`,
  'open gradients': (unit) => `The gradients of ${unit} open: backward may write them`,
};

function momentText(event) {
  const [what, unit] = split(event.name);
  if (event.mark) return kSentences[what]?.(unit) ?? event.name;
  const length = ` (${timeText(event.end - event.begin)})`;
  if (event.name === 'exposed communication') return `The computation waits${length}`;
  return `${event.name} begins${length}`;
}

/// All moments in order of time: {time, text, kind, event}.
function momentsOf(step, events) {
  const found = [];
  events.forEach((event, number) => {
    const waits = event.name === 'exposed communication';
    if (['data', 'forward', 'backward'].includes(event.name)) return;
    if (!event.mark && (waits || event.stream === kCompute) && event.end <= event.begin) return;
    found.push({ time: event.begin, order: event.first, text: momentText(event), event,
      kind: lineKind(step, event, number) });
  });
  const end = Math.max(...events.map((event) => event.end));
  found.sort((a, b) => a.time - b.time || a.order - b.order);
  found.push({ time: end, order: Infinity, text: 'The step ends', event: null, kind: null });
  return found;
}

/// What a stream does at a time.
function busyWith(events, stream, time) {
  return events.filter((event) => !event.mark && event.stream === stream && event.begin <= time && time < event.end &&
    split(event.name)[0] && !['forward', 'backward', 'data'].includes(event.name))
    .reduce((a, b) => (!a || b.end - b.begin <= a.end - a.begin ? b : a), null);
}

if (typeof module !== 'undefined') module.exports = { momentsOf };
