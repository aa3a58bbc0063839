'use strict';
// The player's page: switches, the timeline with its cursor, the line of the rung, and the waits.
//
// `createCalculator` is `tessera plan`, compiled to WebAssembly. kCode (player_code.py) has the rungs and the line of each event.
// The state is window.player.

/// Each switch: its name, label and control, and the arguments of `tessera plan` that it stands for.
const kSwitches = [
  ['strategy', 'Strategy', ['ddp', 'zero1', 'zero2', 'zero3', 'fsdp', 'hsdp'], 'fsdp', (v) => [`sharding.strategy=${v}`]],
  ['ranks', 'Ranks', ['2', '4', '6', '8'], '4', (v) => ['--ranks', v]],
  ['blocks', 'Blocks', ['2', '4', '6', '8'], '4', (v) => [`model.layers=${v}`]],
  ['unit', 'Unit', ['a block', 'two blocks', 'all blocks'], 'a block', (v, all) => [`sharding.buckets=${buckets(v, all)}`]],
  ['live', 'Live gathers', ['1', '2', '3', '4'], '2', (v, all) => (gathers(all) ? [`sharding.live_gathers=${v}`] : [])],
  ['prefetch', 'Prefetch', ['both', 'forward', 'backward', 'none'], 'both', (v, all) => (gathers(all) ? [`sharding.prefetch=${v}`] : [])],
  ['reshard', 'Reshard', ['true', 'false'], 'true', (v, all) => (gathers(all) ? [`sharding.reshard_after_forward=${v}`] : [])],
  ['tokens', 'Tokens', [128, 65536], '16384', (v) => [`data.sequence_length=${Math.min(v, 1024)}`]],
  ['micro', 'Micro-batches', ['1', '2', '4'], '1', (v, all) => [`data.accumulation_steps=${v}`,
    `data.rows_per_rank=${v * Math.max(1, Math.round(all.tokens / Math.min(all.tokens, 1024) / v))}`]],
  ['checkpointing', 'Checkpointing', ['none', 'full'], 'none', (v) => [`sharding.activation_checkpointing=${v}`]],
  ['bandwidth', 'Link, GB/s', [1, 2000], '50', () => []],
  ['latency', 'Latency, us', [0, 1000], '5', () => []],
];
const gathers = (all) => ['zero3', 'fsdp', 'hsdp'].includes(all.strategy);

function buckets(unit, all) {
  if (unit === 'a block') return 'unit';
  const blocks = unit === 'two blocks' ? 2 : Number(all.blocks);
  const names = [];
  for (let block = 0; block < all.blocks; block += blocks) names.push(`h.${block}`);
  return names.join(',');
}

/// A GPU with an H100's rates, and a link as the switches have it.
const machineOf = (all) => ({ name: 'an H100 with this link', source: 'NVIDIA H100 SXM data sheet (2022)', cores: 0, rings: true,
  compute: [{ ranks: 1, threads: 1, dtype: 'bf16', forward_flops_per_second: 989.4e12, backward_flops_per_second: 989.4e12,
    memory_bytes_per_second: 3350e9 }],
  links: [{ ranks: 2, latency_us: Number(all.latency), bytes_per_second: 1e9 * all.bandwidth }] });

const argumentsOf = (all) => ['plan', 'gpt2', 'model.vocab_size=4096', ...kSwitches.flatMap(([name, , , , make]) => make(all[name], all)),
  'runtime.compute_dtype=bf16', 'runtime.threads=1', '--machine', '/machine.json', '--trace', '/trace.json', '--json'];

/// The step of these switches, and the figures of the plan. Raises Error with the program's line.
async function planned(all) {
  const out = [], problems = [];
  const program = await createCalculator({ print: (line) => out.push(line), printErr: (line) => problems.push(line), noInitialRun: true });
  program.FS.writeFile('/machine.json', JSON.stringify(machineOf(all)));
  if (program.callMain(argumentsOf(all)) !== 0) throw new Error(problems.join(' ').replace(/^tessera: /, ''));
  const { step } = JSON.parse(program.FS.readFile('/trace.json', { encoding: 'utf8' }));
  return { step, figures: JSON.parse(out.join('')).plans[0] };
}

const kFills = { forward: '#bcd7ee', backward: '#8cc084', optimizer: '#a3a8ae', gather: '#f0a94e', reduce: '#c9a5cf', held: '#e9edf2',
  wait: '#33587d' };
const kMemory = { parameters: '#33587d', gradients: '#f0a94e', optimizer: '#bcd7ee', activations: '#e9edf2', communication: '#8cc084',
  workspace: '#c9a5cf', other: '#bdbdbd' };

function make(name, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'rect', 'text', 'title', 'line', 'path'].includes(name);
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function bytesText(bytes) {
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (bytes >= size) return `${(bytes / size).toPrecision(3)} ${unit}`;
  }
  return `${bytes} B`;
}

function legend() {
  const names = { forward: 'forward', backward: 'backward', wait: 'waits for communication', optimizer: 'update', gather: 'gather',
    reduce: 'reduce', held: 'slot in use' };
  const entry = ([name, colour]) => make('span', {}, make('i', { style: `background: ${colour}` }), name);
  return make('p', { class: 'legend' }, ...Object.entries(names).map(([kind, name]) => entry([name, kFills[kind]])), ' Memory: ',
    ...Object.entries(kMemory).map(entry));
}

const kindOf = (name) => (/^(all_gather|broadcast)/.test(name) ? 'gather' : /^(reduce|all_reduce)/.test(name) ? 'reduce'
  : name.split(' ')[0]);

/// The boxes of the timeline: { row, begin, end, fill, text }, and the names of the rows.
function boxesOf(step, times, events) {
  const boxes = [], rows = ['compute', 'communication'];
  for (const event of events) {
    const kind = kindOf(event.name), inner = partsOf(event.name).unit;
    if (event.instant || event.end <= event.begin) continue;
    if (event.stream === 'communication') boxes.push({ row: 'communication', ...event, fill: kFills[kind] ?? '#ffffff', text: inner });
    else if (['forward', 'backward'].includes(kind) ? inner : kind === 'optimizer') {
      boxes.push({ row: 'compute', ...event, fill: kFills[kind], text: inner || 'update' });
    } else if (event.name === 'exposed communication') boxes.push({ row: 'compute', ...event, fill: kFills.wait, text: '', over: true });
  }
  // A slot holds a unit from the first access of its stretch to the last.
  for (const access of accessesOf(step)) {
    if (!access.piece.includes('slot')) continue;
    if (!rows.includes(access.piece)) rows.push(access.piece);
    const last = boxes.findLast((box) => box.row === access.piece);
    const [begin, end] = [times[access.first].begin, times[access.last].end];
    if (last?.unit === access.unit) last.end = Math.max(last.end, end);
    else boxes.push({ row: access.piece, begin, end, unit: access.unit, text: access.unit, fill: kFills.held, name: `${access.piece} holds ${access.unit}` });
  }
  return { boxes, rows: [...rows.slice(0, 2), ...rows.slice(2).sort().reverse()] };
}

const kLeft = 112, kWidth = 900, kBar = 24, kPitch = 30, kMemoryHeight = 80;

class Player {
  constructor(place, start) {
    this.place = place;
    this.values = Object.fromEntries(kSwitches.map(([name, , , value]) => [name, value]));
    Object.assign(this.values, start);
    this.removed = new Set();
    this.time = 0;
    this.playing = false;
    this.ready = this.build();
  }

  async build() {
    const form = make('form', { class: 'switches' }, ...kSwitches.map(([name, label, choices]) => make('label', {}, label,
      typeof choices[0] === 'number' ? make('input', { name, type: 'number', min: choices[0], max: choices[1], value: this.values[name] })
        : make('select', { name }, ...choices.map((one) => make('option', one === this.values[name] ? { value: one, selected: '' } : { value: one }, one))))));
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('change', () => this.set(Object.fromEntries(new FormData(form))));
    const button = (text, label, act) => {
      const made = make('button', { type: 'button', 'aria-label': label, title: label }, text);
      made.addEventListener('click', act);
      return made;
    };
    this.playButton = button('Play', 'Play or pause (space)', () => this.toggle());
    this.scrub = make('input', { type: 'range', min: 0, max: 1000, value: 0, 'aria-label': 'Time' });
    this.scrub.addEventListener('input', () => this.seek(this.scrub.value / 1000 * this.end));
    this.clock = make('output');
    this.stage = make('div', { class: 'stage' });
    this.told = make('div', { 'aria-live': 'polite' });
    this.code = make('div', { class: 'code', tabindex: 0 });
    this.codeName = make('h2');
    this.list = make('ul', { class: 'waits' });
    this.place.replaceChildren(make('h1', {}, 'One step of a GPT-2, played'), form,
      make('div', { class: 'transport' }, this.playButton, button('|<', 'Event before (left)', () => this.step(-1)),
        button('>|', 'Next event (right)', () => this.step(1)), this.scrub, this.clock),
      this.stage, legend(), this.told,
      make('div', { class: 'columns' }, make('div', {}, this.codeName, this.code),
        make('div', {}, make('h2', {}, 'Waits'), this.list, button('Restore all', 'Restore all waits (r)', () => this.restore()))),
      make('p', { class: 'keys' }, 'Keys: space plays and pauses, left and right go to the next event, Home and End to the ends, ',
        'w removes the wait at the cursor, r restores all waits.'));
    document.addEventListener('keydown', (event) => this.key(event));
    await this.load();
  }

  /// Changes switches, and plans the step again.
  async set(values) {
    Object.assign(this.values, values);
    for (const [name, value] of Object.entries(this.values)) this.place.querySelector(`[name=${name}]`).value = value;
    this.removed.clear();
    this.time = 0;
    this.pause();
    this.ready = this.load();
    await this.ready;
  }

  async load() {
    const turn = this.turn = (this.turn ?? 0) + 1;
    try {
      const { step, figures } = await planned(this.values);
      if (turn !== this.turn) return;
      Object.assign(this, { log: step, figures, problem: '' });
      this.retime();
    } catch (error) {
      if (turn !== this.turn) return;
      this.problem = error.message;
      this.told.replaceChildren(make('p', { class: 'problem' }, error.message));
      this.stage.replaceChildren();
    }
  }

  /// Times the step without the removed waits.
  retime() {
    this.times = timesOf(this.log, this.removed);
    this.events = eventsOf(this.log, this.times);
    this.races = racesOf(this.log, this.times, this.removed);
    this.waits = waitsOf(this.log);
    this.end = Math.max(...this.times.map((one) => one.end));
    this.moments = [...new Set(this.events.map((event) => event.begin))].sort((a, b) => a - b);
    this.draw();
    this.listWaits();
    this.seek(Math.min(this.time, this.end));
  }

  remove(entry) {
    this.removed.has(entry) ? this.removed.delete(entry) : this.removed.add(entry);
    this.retime();
    if (this.races.length) this.seek(this.races[0].at);
  }
  restore() {
    this.removed.clear();
    this.retime();
  }

  toggle() { this.playing ? this.pause() : this.play(); }
  play() {
    this.playing = true;
    this.playButton.textContent = 'Pause';
    if (this.time >= this.end) this.time = 0;
    let before = performance.now();
    const frame = (now) => {
      if (!this.playing) return;
      this.seek(this.time + (now - before) / 1000 * this.end / 12); // a step takes 12 seconds
      before = now;
      this.time >= this.end ? this.pause() : requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
  pause() {
    this.playing = false;
    this.playButton.textContent = 'Play';
  }
  step(by) {
    this.pause();
    const at = by > 0 ? this.moments.find((one) => one > this.time + 1e-12) : this.moments.findLast((one) => one < this.time - 1e-12);
    this.seek(at ?? (by > 0 ? this.end : 0));
  }
  key(event) {
    if (['INPUT', 'SELECT'].includes(event.target.tagName) && event.target.type !== 'range') return;
    const acts = { ' ': () => this.toggle(), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), Home: () => this.seek(0),
      End: () => this.seek(this.end), r: () => this.restore(), w: () => this.remove(this.nextWait().entry) };
    if (!(event.key in acts) || event.ctrlKey || event.metaKey) return;
    if (event.target.tagName === 'BUTTON' && event.key === ' ') return;
    event.preventDefault();
    acts[event.key]();
  }
  /// The first wait that ends at the cursor or after it.
  nextWait() { return this.waits.find((wait) => this.times[wait.entry].end >= this.time - 1e-12) ?? this.waits.at(-1); }

  /// The event that the cursor has reached last.
  event() {
    return this.events.filter((one) => one.begin <= this.time + 1e-12 && one.name !== 'exposed communication')
      .reduce((latest, one) => (!latest || one.begin >= latest.begin ? one : latest), null);
  }
  /// The bytes by category at the cursor: those of the last event of computation that has ended.
  held() {
    const past = this.events.filter((one) => one.stream === 'compute' && one.end <= this.time + 1e-12);
    return (past.reduce((latest, one) => (!latest || one.end >= latest.end ? one : latest), null) ?? this.events[0]).held;
  }

  seek(time) {
    this.time = Math.max(0, Math.min(time, this.end));
    this.scrub.value = 1000 * this.time / this.end;
    this.clock.textContent = `${(1e3 * this.time).toFixed(3)} of ${(1e3 * this.end).toFixed(3)} ms`;
    const x = this.x(this.time);
    this.cursor.setAttribute('x1', x);
    this.cursor.setAttribute('x2', x);
    const event = this.event(), held = this.held();
    const now = make('p', { class: 'now' }, event ? `${event.stream}: ${event.name}` : 'the step begins');
    const memory = make('p', {}, this.log.categories.map((name, i) => [name, held[i]]).filter(([, bytes]) => bytes > 0)
      .map(([name, bytes]) => `${name} ${bytesText(bytes)}`).join(', '));
    this.told.replaceChildren(now, memory, ...this.races.slice(0, 4).map((race) => make('p', { class: race.wrong ? 'race wrong' : 'race' },
      race.wrong ? `Wrong at ${(1e3 * race.at).toFixed(3)} ms: ${race.text}.`
        : `A race: no wait prevents that ${race.text}. In this run it comes out right, by luck.`)));
    this.showCode(event);
  }

  x(time) { return kLeft + time / this.end * (kWidth - kLeft - 10); }

  draw() {
    const { boxes, rows } = boxesOf(this.log, this.times, this.events);
    const bottom = rows.length * kPitch, height = bottom + kMemoryHeight + 26;
    const svg = make('svg', { viewBox: `0 0 ${kWidth} ${height}`, role: 'img', 'aria-label': 'Timeline of the step', 'font-size': 12,
      'font-family': 'Helvetica, Arial, sans-serif' });
    rows.forEach((row, index) => svg.append(make('text', { x: kLeft - 8, y: index * kPitch + 19, 'text-anchor': 'end', fill: '#222' }, row)));
    for (const box of boxes.sort((a, b) => Boolean(a.over) - Boolean(b.over))) {
      const x = this.x(box.begin), width = Math.max(this.x(box.end) - x, 0.6), y = rows.indexOf(box.row) * kPitch + 3;
      svg.append(make('rect', { x, y, width, height: kBar, fill: box.fill, stroke: '#555', 'stroke-width': 0.6, class: 'box' },
        make('title', {}, `${box.name}: ${(1e3 * (box.end - box.begin)).toFixed(3)} ms`)));
      if (width > 7 * box.text.length + 4) svg.append(make('text', { x: x + width / 2, y: y + 16, 'text-anchor': 'middle', fill: '#222' }, box.text));
    }
    for (const race of this.races) {
      const row = rows.includes(race.piece) ? race.piece : race.late.stream, y = rows.indexOf(row) * kPitch + 1;
      const end = race.wrong ? Math.max(this.x(this.times[race.early.last].end), this.x(race.at) + 5) : this.x(race.at) + 5;
      svg.append(make('rect', { x: this.x(race.at), y, width: end - this.x(race.at), height: kBar + 4, fill: race.wrong ? '#c62828' : '#e8b84a',
        'fill-opacity': 0.75, class: race.wrong ? 'wrong' : 'luck' }, make('title', {}, race.text)));
    }
    this.drawMemory(svg, bottom + 6);
    this.cursor = make('line', { y1: 0, y2: height - 18, stroke: '#c62828', 'stroke-width': 2 });
    svg.append(make('text', { x: kLeft, y: height - 4, fill: '#222' }, '0'),
      make('text', { x: kWidth - 10, y: height - 4, 'text-anchor': 'end', fill: '#222' }, `${(1e3 * this.end).toFixed(3)} ms`), this.cursor);
    svg.addEventListener('click', (event) => {
      const at = (event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width * kWidth;
      this.seek((at - kLeft) / (kWidth - kLeft - 10) * this.end);
    });
    this.stage.replaceChildren(svg);
  }

  /// The bytes of each category over time, as areas on top of each other.
  drawMemory(svg, top) {
    const points = this.events.filter((one) => one.stream === 'compute').sort((a, b) => a.end - b.end);
    const most = Math.max(...points.map((one) => one.held.reduce((a, b) => a + b)));
    const below = points.map(() => 0), y = (bytes) => top + kMemoryHeight * (1 - bytes / most);
    svg.append(make('text', { x: kLeft - 8, y: top + 14, 'text-anchor': 'end', fill: '#222' }, 'memory'),
      make('text', { x: kLeft - 8, y: top + 30, 'text-anchor': 'end', fill: '#222' }, bytesText(most)));
    this.log.categories.forEach((name, index) => {
      const above = points.map((one, i) => below[i] + one.held[index]);
      const stairs = (levels) => points.map((one, i) => `${this.x(one.end).toFixed(1)},${y(levels[i]).toFixed(1)}`);
      svg.append(make('path', { d: `M${[...stairs(above), ...stairs(below).reverse()].join(' L')}Z`, fill: kMemory[name], stroke: '#555',
        'stroke-width': 0.3 }, make('title', {}, name)));
      above.forEach((level, i) => { below[i] = level; });
    });
  }

  listWaits() {
    this.list.replaceChildren(...this.waits.map((wait) => {
      const removed = this.removed.has(wait.entry);
      const button = make('button', { type: 'button' }, removed ? 'Restore' : 'Remove this wait');
      button.addEventListener('click', () => this.remove(wait.entry));
      return make('li', removed ? { class: 'removed' } : {}, make('span', {}, wait.text), button);
    }));
  }

  /// Shows the rung, and the line that causes the event.
  showCode(event) {
    const rung = kCode[this.values.strategy];
    if (this.shown !== rung) {
      this.shown = rung;
      this.codeName.textContent = rung.file;
      this.code.replaceChildren(...rung.text.map((line) => make('div', {}, line || ' ')));
    }
    const line = event ? rung.lines[lineKind(event)] : undefined;
    this.line = line;
    for (const [index, shown] of [...this.code.children].entries()) shown.classList.toggle('here', index + 1 === line);
    if (line) this.code.scrollTop = Math.max(0, this.code.children[line - 1].offsetTop - this.code.offsetTop - 120);
  }
}

/// The key of kCode's lines for an event.
function lineKind(event) {
  const { kind } = partsOf(event.name);
  if (event.instant) return kind;
  const used = kindOf(event.name);
  return used === 'gather' || used === 'reduce' || used === 'optimizer' ? used : 'pass';
}

/// The state in the address: player.html#strategy=fsdp&ranks=2&embedded
const start = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
if ('embedded' in start) document.body.classList.add('embedded');
delete start.embedded;
window.player = new Player(document.getElementById('player'), start);
