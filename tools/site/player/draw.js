'use strict';
// The step player's picture: rows over time, as an SVG of as many units as it has pixels.

/// Fills of the book's figures (docs/figures/drawing.py): a colour, and lines on it.
const kFills = { blue: ['#bcd7ee'], green: ['#8cc084', 'M0,0 L8,8'], grey: ['#a3a8ae'], dark: ['#33587d'],
  orange: ['#f0a94e', 'M0,8 L8,0'], violet: ['#c9a5cf', 'M0,4 L8,4 M4,0 L4,8'], light: ['#e9edf2'],
  white: ['#ffffff'], wrong: ['#e5484d', 'M0,0 L8,8 M8,0 L0,8'] };
const kFillOf = { forward: 'blue', backward: 'green', optimizer: 'grey', wait: 'dark', gather: 'orange', reduce: 'violet',
  other: 'white', held: 'light', wrong: 'wrong' };
const kMemoryColours = ['#1f4e79', '#6f9fc8', '#b7c9a8', '#e0a84e', '#c46a6a', '#8d7bb0', '#bdbdbd'];

function fillDefinitions(id) {
  return make('defs', {}, ...Object.entries(kFills).filter(([, [, lines]]) => lines).map(([name, [colour, lines]]) =>
    make('pattern', { id: `${id}-${name}`, width: 8, height: 8, patternUnits: 'userSpaceOnUse' },
      make('rect', { width: 8, height: 8, fill: colour }),
      make('path', { d: lines, stroke: name === 'wrong' ? '#7a0010' : '#444', 'stroke-opacity': 0.6, fill: 'none' }))));
}

/// The attribute `fill` of a kind of event; `id` names the player's definitions.
function paint(id, kind) {
  const name = kFillOf[kind];
  return kFills[name][1] ? `url(#${id}-${name})` : kFills[name][0];
}

function timeText(us) {
  return us < 1000 ? `${us.toFixed(1)} µs` : `${(us / 1000).toFixed(3)} ms`;
}

function tickOf(most, pieces) {
  const steps = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5].map((power) => one * 10 ** power));
  return steps.sort((a, b) => a - b).find((one) => most / one <= pieces) ?? most;
}

/// The kind of a span of the compute stream, or null for one that is not drawn.
function computeKind(event) {
  const [pass, unit] = split(event.name);
  if (event.mark || !(pass === 'optimizer' || unit)) return null;
  if (event.name === 'exposed communication') return 'wait';
  return ['forward', 'backward', 'optimizer'].includes(pass) ? pass : null;
}

/// Rows from top to bottom, each with the boxes that it has: {name, height, boxes: [{begin, end, kind, label, title}]}.
function rowsOf(step, times, events, slots) {
  const compute = [], travels = [];
  for (const event of events) {
    const title = `${event.name}: ${timeText(event.end - event.begin)}`;
    if (event.stream === kCompute && computeKind(event) && event.end > event.begin) {
      const kind = computeKind(event);
      const works = event.inside.find((index) => step.entries[index].us !== undefined);
      compute.push({ ...event, kind, title, label: kind === 'wait' ? '' : split(event.name)[1] || 'update',
        labelFrom: works === undefined ? event.begin : times[works].begin });
    }
    if (event.stream !== kCompute && !event.mark) {
      travels.push({ ...event, kind: kindOfCollective(event.name), title, label: split(event.name)[1] });
    }
  }
  compute.sort((a, b) => (a.kind === 'wait') - (b.kind === 'wait'));
  const rows = [{ name: 'computation', stream: kCompute, height: 30, boxes: compute },
    { name: 'communication', stream: kCommunication, height: 30, boxes: travels }];
  for (const { name, uses } of slots) {
    const boxes = [];
    uses.forEach((use, number) => {
      if (number > 0 && uses[number - 1].bucket === use.bucket) return;
      let last = number;
      while (uses[last + 1]?.bucket === use.bucket) ++last;
      const end = Math.max(...uses.slice(number, last + 1).map((one) => one.end));
      boxes.push({ begin: use.begin, end, kind: 'held', label: use.bucket,
        title: `${name} holds ${use.bucket}` });
      for (let i = number; i <= last; ++i) {
        const grads = name.startsWith('gradient');
        const kind = uses[i].state === 'travels' ? (grads ? 'reduce' : 'gather')
          : grads || uses[i].state === 'read in backward' ? 'backward' : 'forward';
        boxes.push({ ...uses[i], kind, label: '', strip: true, title: `${name}: ${use.bucket} is ${
          uses[i].state === 'travels' ? (grads ? 'sent' : 'gathered') : uses[i].state}` });
      }
    });
    rows.push({ name, memory: name, height: 20, boxes });
  }
  return rows;
}

/// Draws all rows and returns the picture with what moves: {svg, place(time), head, end}.
function drawRows({ id, step, times, events, slots, peak, waits, removed, findings, width, onSeek, onWait, chosen }) {
  const narrow = width < 560, left = narrow ? 4 : 122, right = 8, text = narrow ? 11 : 12.5;
  const end = Math.max(...times.map((time) => time.end));
  const place = (time) => left + time / end * (width - left - right);
  const svg = make('svg', { role: 'img', width, 'aria-label': 'The step over time, in rows', class: 'player-rows' },
    fillDefinitions(id));
  const grid = make('g', { class: 'player-grid' }), body = make('g');
  svg.append(grid, body);
  const put = (x, y, words, attributes = {}) =>
    body.append(make('text', { x, y, 'font-size': text, ...attributes }, words));
  let y = 22;
  const rows = rowsOf(step, times, events, slots), tops = new Map();
  for (const row of rows) {
    if (narrow) {
      put(left, y + 10, row.name, { 'font-size': 10.5, class: 'player-faint' });
      y += row.stream === kCompute ? 24 : 14;
    } else {
      put(left - 10, y + row.height / 2 + 4, row.name, { 'text-anchor': 'end' });
    }
    tops.set(row.stream ?? row.memory, [y, row.height]);
    for (const box of row.boxes) {
      const x = place(box.begin), size = Math.max(place(box.end) - x, 0.6);
      const top = box.strip ? y + row.height - 7 : y, height = box.strip ? 7 : row.height;
      body.append(make('rect', { x, y: top, width: size, height, fill: paint(id, box.kind), stroke: '#555',
        'stroke-width': 0.4 }, make('title', {}, box.title)));
    }
    for (const box of row.boxes) {
      const x = place(box.labelFrom ?? box.begin), size = place(box.end) - x;
      if (!box.label || size < 6.2 * box.label.length + 4) continue;
      put(x + size / 2, y + (row.stream ? row.height / 2 + 4 : 11), box.label,
        { 'text-anchor': 'middle', class: 'player-label', 'font-size': Math.min(text, 12) });
    }
    y += row.height + (row.stream ? 14 : 5);
  }
  for (const wait of waits) {
    const [top, height] = tops.get(wait.stream), under = wait.stream !== kCompute, x = place(times[wait.entry].end);
    const at = under ? top + height + 7 : top - 6, tip = under ? top + height : top;
    const state = removed.has(wait.entry) ? 'removed' : wait.guards.length ? 'guards' : 'spare';
    const mark = make('polygon', { points: `${x - 5},${at + (under ? 3 : -3)} ${x + 5},${at + (under ? 3 : -3)} ${x},${tip}`,
      class: `player-wait player-wait-${state}${wait.entry === chosen ? ' player-chosen' : ''}`, 'data-entry': wait.entry },
    make('title', {}, wait.text));
    mark.addEventListener('click', () => onWait(wait.entry));
    body.append(mark);
  }
  const shown = new Set();
  for (const one of findings) {
    for (const name of [one.stream, one.memory]) {
      const at = tops.get(name);
      if (!at) continue;
      const x = place(one.begin), size = Math.max(place(one.end) - x, 6);
      body.append(make('rect', { x, y: at[0] - 2, width: size, height: at[1] + 4, 'data-entry': one.entry,
        class: one.wrong ? 'player-wrong' : 'player-luck', fill: one.wrong ? paint(id, 'wrong') : 'none' },
      make('title', {}, one.text)));
      const key = `${name} ${Math.round(x / 12)}`;
      if (!shown.has(key)) {
        put(x + Math.min(size / 2, 30), at[0] + at[1] / 2 + 5, one.wrong ? '✗' : '?',
          { 'text-anchor': 'middle', class: 'player-sign', 'font-size': 15 });
      }
      shown.add(key);
    }
  }
  y = drawMemory({ step, events, peak, end, left, place, body, put, y: y + 6, narrow });
  const tick = tickOf(end, narrow ? 4 : 9);
  for (let time = 0; time <= end; time += tick) {
    grid.append(make('line', { x1: place(time), x2: place(time), y1: 16, y2: y, stroke: 'currentColor',
      'stroke-opacity': 0.14 }), make('text', { x: place(time) + (time === 0 ? 9 : 0), y: 11, 'font-size': 10.5, class: 'player-faint',
      'text-anchor': time === 0 ? 'start' : 'middle' }, time === 0 ? `0 ${end < 4000 ? 'µs' : 'ms'}`
      : String(end < 4000 ? Math.round(time) : time / 1000)));
  }
  const head = make('g', { class: 'player-head' }, make('line', { x1: 0, x2: 0, y1: 14, y2: y }),
    make('polygon', { points: '-6,6 6,6 0,16' }));
  svg.append(head);
  svg.setAttribute('height', y + 2);
  svg.setAttribute('viewBox', `0 0 ${width} ${y + 2}`);
  const seek = (event) => {
    const box = svg.getBoundingClientRect();
    onSeek(Math.min(end, Math.max(0, (event.clientX - box.left - left) / (width - left - right) * end)));
  };
  svg.addEventListener('pointerdown', (event) => {
    if (event.target.classList.contains('player-wait')) return;
    seek(event);
    svg.setPointerCapture(event.pointerId);
    svg.onpointermove = seek;
  });
  for (const name of ['pointerup', 'pointercancel']) svg.addEventListener(name, () => { svg.onpointermove = null; });
  return { svg, place, head, end };
}

/// Memory by category as areas over time, from y down. Returns the y below.
function drawMemory({ step, events, peak, end, left, place, body, put, y, narrow }) {
  const points = memoryOf(events), height = 88;
  points.push({ ...points.at(-1), time: end });
  if (narrow) {
    put(left, y + 10, `memory, peak ${bytesText(peak)}`, { 'font-size': 10.5, class: 'player-faint' });
    y += 14;
  } else {
    put(left - 10, y + 14, 'memory', { 'text-anchor': 'end' });
    put(left - 10, y + 32, `peak ${bytesText(peak)}`, { 'text-anchor': 'end', class: 'player-faint', 'font-size': 11 });
  }
  const level = (bytes) => y + height - bytes / peak * height;
  step.categories.forEach((category, number) => {
    const under = (bytes) => bytes.slice(0, number).reduce((a, b) => a + b, 0);
    const edge = (value) => points.map(({ time, bytes }) => `${place(time).toFixed(1)},${level(value(bytes)).toFixed(1)}`);
    const upper = edge((bytes) => under(bytes) + bytes[number]), lower = edge(under).reverse();
    body.append(make('polygon', { points: [...upper, ...lower].join(' '), fill: kMemoryColours[number] },
      make('title', {}, category)));
  });
  return y + height + 6;
}
