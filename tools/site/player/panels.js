'use strict';
// The panels below the step player's picture: the present event with its line of a rung, the wait, and the ranks.

function drawLegend(player) {
  const entries = [['forward', 'forward'], ['backward', 'backward'], ['optimizer', 'update'], ['wait', 'waits'],
    ['gather', 'gather'], ['reduce', 'reduce'], ['other', 'norm, loss'], ['held', 'slot holds values'], ['wrong', 'too early']];
  const swatch = (paintOf) => make('svg', { width: 13, height: 13 }, make('rect', { width: 13, height: 13, fill: paintOf,
    stroke: '#555' }));
  player.legend.replaceChildren(...entries.map(([kind, name]) =>
    make('span', {}, swatch(paint(player.id, kind)), name)),
  ...player.step.categories.map((name, number) => make('span', {}, swatch(kMemoryColours[number]), name)));
}

function drawWaitPanel(player) {
  const wait = player.waits.find((one) => one.entry === player.chosen);
  if (!wait) return;
  const removed = player.removed.has(wait.entry);
  player.waitList.value = wait.entry;
  player.waitButton.textContent = removed ? 'Restore this wait' : 'Remove this wait';
  player.waitText.textContent = wait.told;
}

/// The text of the present moment, the line of the rung that causes it, and what each rank does.
function drawMoment(player) {
  const moment = player.moments[player.index];
  if (player.told !== moment) {
    player.now.textContent = `${timeText(moment.time)}: ${moment.text}.`;
    drawCode(player, moment);
    player.told = moment;
  }
  if (player.ranks.closest('details').open) drawRanks(player);
}

const kAround = 4;
function drawCode(player, moment) {
  const rung = kRungs[player.values.strategy];
  const line = rung.at[moment.kind];
  player.line = line ?? null;
  if (line === undefined) {
    player.code.replaceChildren(make('p', { class: 'player-told' }, `${rung.file} has no line for this event.`));
    return;
  }
  const from = Math.max(1, line - kAround), to = Math.min(rung.lines.length, line + kAround);
  const lines = rung.lines.slice(from - 1, to).map((text, number) =>
    make('span', from + number === line ? { class: 'player-line' } : {}, `${String(from + number).padStart(4)}  ${text}\n`));
  player.code.replaceChildren(make('p', { class: 'player-told' }, `${rung.file}, line ${line}`), make('pre', {}, ...lines));
}

/// Which ranks keep a rank's cell of the grid all the time: every rank's part, or its own.
const kWhole = { ddp: 'PGO', zero1: 'PG', zero2: 'P', zero3: '', fsdp: '', hsdp: '' };

/// A card for each rank. The clock has the ranks do the same at the same time.
function drawRanks(player) {
  const { events, time, values } = player, ranks = Number(values.ranks);
  const shards = values.strategy === 'hsdp' ? ranks / Number(player.plan.mesh?.split(' ')[0] ?? 1) : ranks;
  const busy = [busyWith(events, kCompute, time), busyWith(events, kCommunication, time)];
  const slots = slotsNow(player);
  const cells = (name, state) => make('div', { class: 'player-cells' }, make('b', {}, name),
    ...Array.from({ length: shards }, (_, part) => make('i', { style: `--full: ${state(part)}` })));
  player.ranks.replaceChildren(...Array.from({ length: ranks }, (_, rank) => {
    const own = rank % shards, whole = kWhole[values.strategy];
    const kept = (letter) => (part) => (whole.includes(letter) || part === own ? 1 : 0);
    return make('div', { class: 'player-rank' }, make('strong', {}, `rank ${rank}`),
      make('span', {}, busy[0]?.name === 'exposed communication' ? 'waits' : busy[0]?.name ?? 'idle'),
      make('span', {}, busy[1]?.name ?? 'no messages'),
      cells('P', kept('P')), cells('G', kept('G')), cells('O', kept('O')),
      ...slots.map(({ number, bucket, full }) => cells(`${number}: ${bucket}`, (part) => (part === own ? 1 : full))));
  }));
}

/// The gathered slots at a time: their bucket, and how much of the other ranks' parts has arrived.
function slotsNow({ slots, time }) {
  return slots.filter(({ name }) => name.startsWith('slot ')).map(({ name, uses }) => {
    const begun = uses.filter((use) => use.begin <= time), last = begun.at(-1);
    const gather = begun.filter((use) => use.state === 'travels').at(-1);
    const filling = gather && gather.bucket === last.bucket && time < gather.end;
    return { number: name.split(' ')[1], bucket: last?.bucket ?? uses[0].bucket,
      full: filling ? (time - gather.begin) / (gather.end - gather.begin) : 1 };
  });
}
