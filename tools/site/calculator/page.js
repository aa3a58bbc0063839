'use strict';
// The form of docs/calculator.md. `createCalculator` is `tessera plan`, compiled to WebAssembly.

const kModels = ['gpt2', 'gpt2-medium', 'gpt2-large', 'gpt2-xl', 'llama3.2-1b', 'llama3.2-3b', 'llama3-8b', 'llama3-70b',
  'qwen3-0.6b', 'qwen3-1.7b', 'qwen3-8b', 'qwen3-30b-a3b', 'llama4-scout'];
const kCategories = [['parameters', '#1f4e79'], ['gradients', '#6f9fc8'], ['optimizer', '#b7c9a8'],
  ['activations', '#e0a84e'], ['communication', '#c46a6a'], ['workspace', '#8d7bb0'], ['other', '#bdbdbd']];
const kLanes = { forward: '#a9cbe8', backward: '#b9ddb3', optimizer: '#d9d9d9', gather: '#f4c27a', reduce: '#e3a6cf',
  wait: '#d64545', other: '#e4e0d4' };

/// Each field: the form's label, its control, and the arguments of `tessera plan` that it stands for.
const kFields = [
  ['model', 'Model', { choices: kModels, value: 'gpt2-xl' }, (value) => [value]],
  ['ranks', 'Ranks', { number: [1, 1024], value: 8 }, (value) => ['--ranks', value]],
  ['nodes', 'Nodes', { number: [1, 128], value: 1 }, (value) => ['--nodes', value]],
  ['strategy', 'Strategy', { choices: ['ddp', 'zero1', 'zero2', 'zero3', 'fsdp', 'hsdp'], value: 'fsdp' },
    (value) => [`sharding.strategy=${value}`]],
  ['dtype', 'Computed in', { choices: ['bf16', 'f32', 'f16'], value: 'bf16' },
    (value) => [`runtime.compute_dtype=${value}`]],
  ['checkpointing', 'Activation checkpointing', { choices: ['none', 'full', 'every 2'], value: 'none' },
    (value) => [`sharding.activation_checkpointing=${value}`]],
  ['offload', 'Offload', { choices: ['none', 'optimizer', 'all'], value: 'none' },
    (value) => [`sharding.offload=${value}`]],
  ['rows', 'Rows per rank', { number: [1, 1024], value: 4 }, (value) => [`data.rows_per_rank=${value}`]],
  ['sequence', 'Tokens per row', { number: [1, 131072], value: 1024 }, (value) => [`data.sequence_length=${value}`]],
  ['machine', 'GPU', { choices: ['a100', 'h100', 'h200'], value: 'h100' }, (value) => ['--machine', value]],
];

/// The arguments of `tessera` for the form's values.
function planArguments(values) {
  const found = kFields.flatMap(([name, , , argumentsOf]) => argumentsOf(String(values[name])));
  return ['plan', ...found, 'runtime.threads=1'];
}

/// Runs `tessera plan`: its figures, and the events of the predicted step. Raises Error with the
/// program's own line.
async function plan(values) {
  const out = [], problems = [];
  const program = await createCalculator({ print: (line) => out.push(line), printErr: (line) => problems.push(line),
    noInitialRun: true });
  const status = program.callMain([...planArguments(values), '--json', '--trace', '/trace.json']);
  if (status !== 0) throw new Error(problems.join(' ').replace(/^tessera: /, ''));
  const trace = JSON.parse(program.FS.readFile('/trace.json', { encoding: 'utf8' }));
  return { figures: JSON.parse(out.join('')), events: trace.traceEvents };
}

function control(name, { choices, number, value }) {
  if (!choices) return make('input', { name, type: 'number', min: number[0], max: number[1], value, required: '' });
  return make('select', { name }, ...choices.map((choice) =>
    make('option', choice === value ? { value: choice, selected: '' } : { value: choice }, choice)));
}

function form() {
  return make('form', { class: 'calculator' }, ...kFields.map(([name, label, kind]) =>
    make('label', {}, make('span', {}, label), control(name, kind))));
}

/// The strategy of the form first, as the JSON has it, and then all others.
function strategies(figures) {
  const chosen = figures.plans[0];
  const others = chosen.strategies.filter((one) => one.strategy !== chosen.strategy);
  return [chosen, ...others].filter((one) => one.peak);
}

function table(figures) {
  const head = ['strategy', 'peak per rank', 'sent per step', 'step ms', 'exposed ms', 'tokens/s', 'limit'];
  const row = (one) => [one.mesh ? `${one.strategy} ${one.mesh}` : one.strategy, bytesText(one.peak.total),
    bytesText(one.bytes_sent.most), (one.time.step_seconds * 1e3).toFixed(2),
    (one.time.exposed_seconds * 1e3).toFixed(2), Math.round(one.time.tokens_per_second).toLocaleString('en'),
    one.time.limit];
  const cells = (kind, texts) => make('tr', {}, ...texts.map((text) => make(kind, {}, String(text))));
  return make('div', { class: 'calculator-frame' }, make('table', { class: 'calculator-table' },
    make('thead', {}, cells('th', head)), make('tbody', {}, ...strategies(figures).map((one) => cells('td', row(one))))));
}

function legend(entries) {
  return make('p', { class: 'calculator-legend' }, ...entries.map(([name, colour]) =>
    make('span', {}, make('i', { style: `background: ${colour}` }), name)));
}

/// A bar per strategy, divided into the categories at the peak.
function memoryBars(figures) {
  const rows = strategies(figures);
  const most = Math.max(...rows.map((one) => one.peak.total));
  const width = 700, left = 90, right = 90, bar = 22, pitch = 32;
  const svg = make('svg', { viewBox: `0 0 ${width} ${rows.length * pitch}`, role: 'img' });
  rows.forEach((one, index) => {
    const top = index * pitch + 4;
    svg.append(make('text', { x: left - 8, y: top + 16, 'text-anchor': 'end' }, one.strategy));
    let x = left;
    for (const [category, colour] of kCategories) {
      const size = one.peak.categories[category] / most * (width - left - right);
      const title = make('title', {}, `${category} ${bytesText(one.peak.categories[category])}`);
      svg.append(make('rect', { x, y: top, width: size, height: bar, fill: colour }, title));
      x += size;
    }
    svg.append(make('text', { x: x + 6, y: top + 16 }, bytesText(one.peak.total)));
  });
  return make('figure', {}, make('figcaption', {}, 'Memory at the peak, by category'), svg, legend(kCategories));
}

function laneColour(name) {
  if (name === 'exposed communication') return kLanes.wait;
  if (/^(all_gather|broadcast)/.test(name)) return kLanes.gather;
  if (/^(reduce_scatter|all_reduce|reduce)/.test(name)) return kLanes.reduce;
  return kLanes[name.split(' ')[0]] ?? kLanes.other;
}

/// A lane per stream of the chosen strategy's step.
function timeline(events) {
  const lanes = new Map(events.filter((one) => one.name === 'thread_name').map((one) => [one.tid, one.args.name]));
  const spans = events.filter((one) => one.ph === 'X' && one.dur > 0);
  const end = Math.max(...spans.map((one) => one.ts + one.dur));
  const order = [...lanes.keys()].sort((a, b) => lanes.get(b).localeCompare(lanes.get(a)));
  const width = 700, left = 110, bar = 26, pitch = 36;
  const svg = make('svg', { viewBox: `0 0 ${width} ${order.length * pitch + 18}`, role: 'img' });
  const place = (time) => left + time / end * (width - left - 8);
  order.forEach((tid, index) => {
    const top = index * pitch;
    svg.append(make('text', { x: left - 8, y: top + 18, 'text-anchor': 'end' }, lanes.get(tid)));
    for (const one of spans.filter((span) => span.tid === tid)) {
      const title = make('title', {}, `${one.name}: ${(one.dur / 1e3).toFixed(3)} ms`);
      svg.append(make('rect', { x: place(one.ts), y: top, width: Math.max(place(one.dur) - left, 0.3), height: bar,
        fill: laneColour(one.name), stroke: '#555', 'stroke-width': 0.2 }, title));
    }
  });
  const bottom = order.length * pitch + 12;
  svg.append(make('text', { x: left, y: bottom }, '0'),
    make('text', { x: width - 8, y: bottom, 'text-anchor': 'end' }, `${(end / 1e3).toFixed(2)} ms`));
  return make('figure', {}, make('figcaption', {}, 'The predicted step of the chosen strategy on one rank'), svg,
    legend(Object.entries(kLanes)));
}

async function showCalculator(place) {
  const fields = form(), output = make('div', { class: 'calculator-output', 'aria-live': 'polite' });
  place.replaceChildren(fields, output);
  let wanted = 0;
  const update = async () => {
    const turn = ++wanted;
    const values = Object.fromEntries(new FormData(fields));
    try {
      const { figures, events } = await plan(values);
      if (turn !== wanted) return; // a later change has its own figures
      output.replaceChildren(make('p', { class: 'calculator-model' }, figures.model), table(figures),
        memoryBars(figures), timeline(events));
    } catch (error) {
      if (turn === wanted) output.replaceChildren(make('p', { class: 'calculator-problem' }, error.message));
    }
    place.dataset.shown = turn;
  };
  fields.addEventListener('change', update);
  fields.addEventListener('submit', (event) => event.preventDefault());
  await update();
}

if (typeof document !== 'undefined') {
  const place = document.getElementById('calculator');
  if (place) showCalculator(place);
} else {
  module.exports = { planArguments, kFields };
}
