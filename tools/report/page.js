'use strict';
// The sections of the page, from the data of the runs. Each run has `name`, `start` (its last event of
// that name), `columns` (a list per field of metrics.jsonl, of equal lengths), `events`, `watch` (the
// watched steps, each with lists over its `units`) and, after train.profile, `memory`.

const data = JSON.parse(document.getElementById('data').textContent);
const runs = data.runs;
const page = document.getElementById('page');
const kMiB = 1048576;
const kAxes = { step: 'step', tokens: 'tokens', elapsed_s: 'seconds' };
const state = { axis: 'step', log: false, run: 0, reading: 0 };
const redrawn = [];

const column = (run, name) => run.columns[name] || [];
const scaled = (run, name, factor) => column(run, name).map(v => v === null ? null : v * factor);
const has = (run, name) => column(run, name).some(v => v !== null);
const last = values => values.filter(v => v !== null).at(-1) ?? null;
const events = (run, name) => run.events.filter(event => event.event === name);

function median(values) {
  const sorted = values.filter(v => v !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

function clock(seconds) {
  if (seconds === null) return '-';
  const two = number => String(number).padStart(2, '0');
  const whole = Math.round(seconds), hours = Math.floor(whole / 3600);
  return (hours ? hours + ':' + two(Math.floor(whole / 60) % 60) : Math.floor(whole / 60)) + ':' + two(whole % 60);
}

/// Seconds of training in all: each program that continues a run counts from zero.
function secondsOf(run) {
  const starts = column(run, 'elapsed_s');
  let done = 0, before = 0;
  return starts.map(now => {
    if (now < before) done += before;
    before = now;
    return done + now;
  });
}
for (const run of runs) run.columns.elapsed_s = secondsOf(run);

function section(title, note, wide, ...content) {
  const box = element('section', wide ? { class: 'wide' } : {}, element('h2', {}, title));
  if (note) box.append(element('p', { class: 'quiet' }, note));
  box.append(...content);
  page.append(box);
  return box;
}

function legend(entries) {
  const box = element('div', { class: 'legend' });
  for (const [name, color] of entries) {
    const key = element('span', { class: 'key' });
    key.style.background = color;
    box.append(element('span', {}, key, name));
  }
  return box;
}

/// A chart that is made anew when a control changes.
function live(make) {
  const holder = element('div');
  const update = () => holder.replaceChildren(make());
  redrawn.push(update);
  update();
  return holder;
}

function choice(labels, chosen, choose) {
  const box = element('div', { class: 'controls' });
  labels.forEach((label, i) => {
    const button = element('button', { type: 'button', 'aria-pressed': String(i === chosen()) }, label);
    button.addEventListener('click', () => {
      choose(i);
      [...box.children].forEach((b, k) => b.setAttribute('aria-pressed', String(k === chosen())));
      redrawn.forEach(update => update());
    });
    box.append(button);
  });
  return box;
}

const xOf = run => column(run, state.axis);

function statusOf(run) {
  const final = run.events.filter(event => ['start', 'stop', 'end'].includes(event.event)).at(-1);
  if (final && final.event === 'end') return 'complete';
  if (final && final.event === 'stop') return 'stopped';
  return 'not complete';
}

/// The axes that cut layers, rows or the model: ' on pipeline 2 x tensor 4'. Others follow from the strategy.
function cutsOf(mesh) {
  const cuts = (mesh ?? '').split(' x ').filter(axis => /^(pipeline|context|tensor|expert) /.test(axis));
  return cuts.length ? ` on ${cuts.join(' x ')}` : '';
}

function summary() {
  const heads = ['run', 'model', 'on', 'step', 'loss', 'best val', 'tokens/s', 'ms/step', 'peak MiB', 'time', ''];
  const table = element('table', {}, element('tr', {}, ...heads.map(head => element('th', {}, head))));
  runs.forEach((run, i) => {
    const key = element('span', { class: 'key' });
    key.style.background = colour(i);
    const vals = column(run, 'val_loss').filter(v => v !== null);
    const peak = rangeOf(column(run, 'peak_bytes.total'))[1];
    const start = run.start;
    const cells = [
      start.parameters ? `${short(start.parameters)} parameters` : '-',
      start.strategy ? `${start.strategy}${cutsOf(start.mesh)}, ${start.ranks} x ${start.device}, ${start.dtype}` : '-',
      `${last(column(run, 'step')) ?? 0}/${start.steps ?? '?'}`,
      short(last(column(run, 'mean_loss'))), vals.length ? short(Math.min(...vals)) : '-',
      short(median(column(run, 'tokens_per_second'))), short(median(column(run, 'step_ms'))),
      short(peak / kMiB), clock(last(column(run, 'elapsed_s'))), statusOf(run)];
    table.append(element('tr', {}, element('td', {}, key, run.name), ...cells.map(cell => element('td', {}, cell))));
  });
  const thinned = runs.filter(run => run.every > 1);
  section('Runs', thinned.length
    ? `Long runs are thinned: ${thinned.map(run => `every ${run.every}th line of ${run.name}`).join(', ')}, and all with a validation loss.` : '',
    true, element('div', { class: 'table' }, table));
}

function marksOf(run) {
  if (runs.length > 1 || state.axis !== 'step') return [];
  return run.events.filter(event => ['resume', 'skip', 'rollback', 'stop'].includes(event.event))
    .map(event => ({ x: event.step, label: `${event.event} at step ${event.step}` }));
}

/// The points of a field that has no value in most lines.
function pointsOf(run, name) {
  const at = column(run, name).map((v, k) => v === null ? -1 : k).filter(k => k >= 0);
  return { x: at.map(k => xOf(run)[k]), y: at.map(k => column(run, name)[k]), dots: true };
}

function losses() {
  const controls = element('div', { class: 'row' },
    choice(['by step', 'by tokens', 'by time'], () => Object.keys(kAxes).indexOf(state.axis),
           i => { state.axis = Object.keys(kAxes)[i]; }),
    choice(['linear', 'logarithmic'], () => Number(state.log), i => { state.log = i === 1; }));
  const make = () => lineChart(runs.flatMap((run, i) => {
    const name = runs.length > 1 ? run.name : 'training';
    const lines = [{ name, color: colour(i), x: xOf(run), y: column(run, 'mean_loss') }];
    if (has(run, 'val_loss')) {
      lines.push({ name: runs.length > 1 ? `${run.name}, validation` : 'validation', color: colour(runs.length > 1 ? i : 1),
                   ...pointsOf(run, 'val_loss'), dashed: runs.length > 1 });
    }
    return lines;
  }), { xLabel: kAxes[state.axis], log: state.log, height: 320, marks: marksOf(runs[0]) });
  section('Loss', 'The mean of the steps since the line before, and the validation loss (dots). ' +
    (runs.length === 1 && marksOf(runs[0]).length ? 'Dotted lines: resumed, skipped, rolled back or stopped.' : ''), true,
    controls, live(make), legend(runs.length > 1 ? runs.map((run, i) => [run.name, colour(i)])
                                                 : [['training', colour(0)], ['validation', colour(1)]]));
}

/// The validation losses of the sources of one run.
function sources() {
  const prefix = 'val_losses.';
  const namesOf = run => Object.keys(run.columns).filter(name => name.startsWith(prefix));
  if (!runs.some(run => namesOf(run).length)) return;
  const names = [...new Set(runs.flatMap(namesOf))].sort();
  const make = () => lineChart(runs.flatMap(run => namesOf(run).map(name => ({
    name: runs.length > 1 ? `${run.name}, ${name.slice(prefix.length)}` : name.slice(prefix.length),
    color: colour(names.indexOf(name)), ...pointsOf(run, name), dashed: run !== runs[0] }))),
    { xLabel: kAxes[state.axis], log: state.log });
  section('Validation by source', 'The loss of each source. Its perplexity is the exponential of the loss.', false,
    live(make), legend(names.map((name, i) => [name.slice(prefix.length), colour(i)])));
}

/// One field of all runs.
function field(title, note, name, options = {}) {
  if (!runs.some(run => column(run, name).some(value => value))) return;
  const make = () => lineChart(runs.map((run, i) => ({ name: run.name, color: colour(i), x: xOf(run), y: scaled(run, name, options.factor || 1) })),
    { xLabel: kAxes[state.axis], ...options });
  section(title, note, false, live(make));
}

function questions() {
  if (!runs.some(run => has(run, 'hellaswag'))) return;
  section('HellaSwag', 'The share of questions that the model answers right; 0.25 is chance for four endings.', false,
    live(() => lineChart(runs.map((run, i) => ({ name: run.name, color: colour(i), ...pointsOf(run, 'hellaswag') })),
                         { xLabel: kAxes[state.axis] })));
}

const chosenRun = () => runs[state.run];

function runChooser() {
  if (runs.length < 2) return;
  section('One run at a time', 'The charts below show one run.', true,
    choice(runs.map(run => run.name), () => state.run, i => { state.run = i; }));
}

function phases() {
  const names = ['data', 'forward', 'backward', 'optimizer'];
  const make = () => {
    const run = chosenRun();
    return areaChart(xOf(run), names.map((name, i) => ({ name, color: colour([4, 0, 1, 2][i]), y: column(run, `${name}_ms`) })),
      { xLabel: kAxes[state.axis], unit: 'ms', total: column(run, 'step_ms'), totalName: 'step' });
  };
  section('Time of a step, ms', 'Each on the rank with the largest.', false, live(make),
    legend([...names.map((name, i) => [name, colour([4, 0, 1, 2][i])]), ['whole step', 'var(--text)']]));
  if (!runs.some(run => column(run, 'communication_ms').some(v => v > 0))) return;
  section('Communication, ms per step', 'In collectives, and the part that computation waited for.', false,
    live(() => {
      const run = chosenRun();
      return lineChart([{ name: 'in collectives', color: colour(0), x: xOf(run), y: column(run, 'communication_ms') },
                        { name: 'exposed', color: colour(1), x: xOf(run), y: column(run, 'exposed_communication_ms') }],
        { xLabel: kAxes[state.axis], unit: 'ms', zero: true });
    }), legend([['in collectives', colour(0)], ['exposed', colour(1)]]));
}

const kCategories = ['parameters', 'gradients', 'optimizer', 'activations', 'communication', 'workspace', 'other'];

function memory() {
  section('Memory, MiB', 'The peak of each category since the line before, on the rank with the most; the line is the peak of their sum.', false,
    live(() => {
      const run = chosenRun();
      return areaChart(xOf(run), kCategories.map((name, i) => ({ name, color: colour(i), y: scaled(run, `peak_bytes.${name}`, 1 / kMiB) })),
        { xLabel: kAxes[state.axis], unit: 'MiB', total: scaled(run, 'peak_bytes.total', 1 / kMiB), totalName: 'total' });
    }), legend([...kCategories.map((name, i) => [name, colour(i)]), ['total', 'var(--text)']]));
  if (!runs.some(run => run.memory)) return;
  section('Memory within the profiled steps, MiB', 'Bytes in use on rank 0, by category, over time (train.profile).', true,
    live(() => {
      const run = chosenRun();
      if (!run.memory || !Array.isArray(run.memory.ms) || !run.memory.ms.length) return element('p', { class: 'quiet' }, 'This run has no profile.');
      return areaChart(run.memory.ms, kCategories.map((name, i) => ({ name, color: colour(i), y: (run.memory[name] || []).map(bytes => bytes / kMiB) })),
        { xLabel: 'ms', unit: 'MiB', stepped: true, height: 300 });
    }), legend(kCategories.map((name, i) => [name, colour(i)])));
}

function traffic() {
  if (!runs.some(run => column(run, 'bytes_sent').some(v => v > 0))) return;
  section('Sent per step, MiB', 'By the rank that sends the most: measured, and as predicted before the run.', false,
    live(() => {
      const run = chosenRun();
      const predicted = run.start.predicted && run.start.predicted.bytes_sent;
      const lines = [{ name: 'measured', color: colour(0), x: xOf(run), y: scaled(run, 'bytes_sent', 1 / kMiB) }];
      if (predicted) lines.push({ name: 'predicted', color: colour(1), x: rangeOf(xOf(run)), y: [predicted / kMiB, predicted / kMiB], dashed: true });
      return lineChart(lines, { xLabel: kAxes[state.axis], unit: 'MiB', zero: true });
    }), legend([['measured', colour(0)], ['predicted', colour(1)]]));
}

function experts() {
  if (!runs.some(run => has(run, 'expert_load'))) return;
  section('Load of the experts', 'The largest load of a layer over its mean; 1 is perfect balance. A deeper colour is a larger load.', false,
    live(() => {
      const run = chosenRun();
      const loads = column(run, 'expert_load');
      const layers = Math.max(0, ...loads.map(load => load ? load.length : 0));
      if (!layers) return element('p', { class: 'quiet' }, 'This run has no experts.');
      return heatMap(xOf(run), Array.from({ length: layers }, (_, l) => ({ name: `layer ${l}`, y: loads.map(load => load && load.length > l ? load[l] : null) })),
        { xLabel: kAxes[state.axis] });
    }));
  field('Experts without a token', 'Of all layers, in the last step of the interval.', 'idle_experts', { zero: true });
}

const kReadings = [['gradient_norm', 'gradient'], ['update_norm', 'update'], ['weight_norm', 'weights'], ['update_ratio', 'update / weights'],
                   ['largest_activation', 'largest activation'], ['attention_logit', 'attention logit'], ['router_entropy', 'router entropy']];

/// A unit's reading in each watched step; null where a logarithmic scale has no place for it.
function readingsOf(watches, unit, name) {
  return watches.map(watch => {
    const value = (watch[name] || [])[watch.units.indexOf(unit)];
    return typeof value === 'number' && value > 0 ? value : null;
  });
}

function units() {
  if (!runs.some(run => run.watch.length)) return;
  section('Units, step by step', 'Readings of watched steps (train.watch), from the first unit at the bottom to the last. A deeper colour is a larger number, on a logarithmic scale.', true,
    choice(kReadings.map(reading => reading[1]), () => state.reading, i => { state.reading = i; }),
    live(() => {
      const watches = chosenRun().watch, name = kReadings[state.reading][0];
      const rows = (watches.length ? watches[0].units : []).map(unit => ({ name: unit, y: readingsOf(watches, unit, name) }))
        .filter(row => row.y.some(value => value !== null));
      if (!rows.length) return element('p', { class: 'quiet' }, 'This run has no such reading.');
      return heatMap(watches.map(watch => watch.step), rows, { xLabel: 'step', log: true });
    }));
}

function samples() {
  const all = runs.flatMap(run => events(run, 'sample').map(event => [run, event]));
  if (!all.length) return;
  section('Samples', 'Texts that the model continued during training.', true,
    ...all.slice(-12).reverse().flatMap(([run, event]) => [element('div', { class: 'quiet' }, `${run.name}, step ${event.step}`), element('pre', {}, event.text)]));
}

function timeline() {
  const shown = runs.flatMap(run => run.events.filter(event => event.event !== 'sample').map(event => [run, event]));
  if (!shown.length) return;
  const table = element('table', {}, element('tr', {}, ...['run', 'event', 'step', 'time', ''].map(head => element('th', { class: 'left' }, head))));
  const known = new Set(['event', 'step', 'elapsed_s', 'time', 'predicted', 'model']);
  const text = value => typeof value === 'number' ? short(value) : String(value);
  for (const [run, event] of shown.slice(-60)) {
    const rest = Object.entries(event).filter(([key]) => !known.has(key)).map(([key, value]) => `${key} ${text(value)}`).join(', ');
    table.append(element('tr', {}, ...[run.name, event.event, event.step, event.time, rest].map(cell => element('td', { class: 'left' }, String(cell)))));
  }
  section('Events', shown.length > 60 ? `The last 60 of ${shown.length}.` : '', true, element('div', { class: 'table' }, table));
}

document.getElementById('when').textContent = `Written ${data.written} by tessera report.`;
summary();
losses();
sources();
questions();
field('Learning rate', '', 'learning_rate', { zero: true });
field('Gradient norm', 'The largest since the line before, without clipping.', 'max_gradient_norm', { log: true });
field('Tokens per second', 'Of all ranks; evaluations do not count.', 'tokens_per_second', { zero: true });
field('Share of the peak (MFU)', 'FLOP/s of the model over those of the data sheet.', 'mfu', { zero: true });
field('Share of plain matrix products', 'FLOP/s of the model over those of products of its shapes.', 'matmul_fraction', { zero: true });
field('Reward margin', 'The chosen answers\' rewards minus those of the rejected ones.', 'margin');
field('Preference accuracy', 'The share of pairs whose chosen answer has the larger reward.', 'accuracy', { zero: true });
field('Router loss', 'Balance and z-losses, which the loss does not contain.', 'router_loss', { zero: true });
runChooser();
phases();
memory();
traffic();
experts();
units();
samples();
timeline();
