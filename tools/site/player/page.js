'use strict';
// The step player on a page (docs/playing.md): its controls, its clock and its panels. `createCalculator` is
// `tessera plan`, compiled to WebAssembly (tools/site/calculator.sh).

const kBase = document.currentScript.src.replace(/[^/]*$/, '');
const kSecondsOfStep = 16;
let programLoads = null;

/// Loads the program once, when the first player of a page is seen.
function loadProgram() {
  programLoads ??= new Promise((done, failed) => {
    const script = make('script', { src: `${kBase}calculator.js` });
    script.onload = done;
    script.onerror = () => failed(new Error('calculator.js is missing; tools/site.sh builds it'));
    document.head.append(script);
  });
  return programLoads;
}

/// The predicted step of a configuration. Raises Error with the program's own line.
async function predictedStep(values) {
  await loadProgram();
  const problems = [], out = [];
  const program = await createCalculator({ print: (line) => out.push(line), printErr: (line) => problems.push(line),
    noInitialRun: true });
  program.FS.writeFile('/machine.json', machineText(values));
  const status = program.callMain([...planArguments(values, '/machine.json'), '--json', '--trace', '/trace.json']);
  if (status !== 0) throw new Error(problems.join(' ').replace(/^tessera: /, ''));
  const trace = JSON.parse(program.FS.readFile('/trace.json', { encoding: 'utf8' }));
  return { step: readStep(trace.step), plan: JSON.parse(out.join('')).plans[0] };
}

class Player {
  constructor(place, start) {
    this.place = place;
    this.id = `player${document.querySelectorAll('.player-rows').length}${Math.random().toString(36).slice(2, 6)}`;
    this.values = startValues(start);
    this.removed = new Set();
    this.time = 0;
    this.playing = false;
    this.speed = 1;
    this.shown = 0;
    this.turn = 0;
    this.build();
  }

  build() {
    const button = (name, label, sign, act) => {
      const made = make('button', { type: 'button', name, title: label, 'aria-label': label }, sign);
      made.addEventListener('click', () => act());
      return made;
    };
    this.form = make('form', { class: 'player-switches' }, ...kSwitches.map(([name, label, choices]) =>
      make('label', {}, make('span', {}, label), make('select', { name }, ...choices.map((choice) =>
        make('option', { value: choice, ...(choice === this.values[name] ? { selected: '' } : {}) }, choice))))));
    this.form.addEventListener('change', (event) => this.set(event.target.name, event.target.value));
    this.form.addEventListener('submit', (event) => event.preventDefault());
    this.playButton = button('play', 'Play or pause (space)', '▶', () => this.toggle());
    this.slider = make('input', { type: 'range', min: 0, max: 1000, step: 'any', value: 0, 'aria-label': 'Time' });
    this.slider.addEventListener('input', () => this.seek(this.slider.value / 1000 * this.end));
    this.clock = make('output', { class: 'player-clock' });
    const speed = make('select', { name: 'speed', 'aria-label': 'Speed' }, ...['0.25', '0.5', '1', '2', '4'].map((one) =>
      make('option', { value: one, ...(one === '1' ? { selected: '' } : {}) }, `${one}×`)));
    speed.addEventListener('change', () => { this.speed = Number(speed.value); });
    this.bar = make('div', { class: 'player-bar' }, button('first', 'To the start (Home)', '|◀', () => this.seek(0, 0)),
      button('back', 'To the previous event (left)', '◁', () => this.back()), this.playButton,
      button('forward', 'To the next event (right)', '▷', () => this.forward()), this.slider, this.clock, speed);
    this.chart = make('div', { class: 'player-chart' });
    this.legend = make('p', { class: 'player-legend' });
    this.now = make('p', { class: 'player-now', 'aria-live': 'polite' });
    this.waitList = make('select', { name: 'wait', 'aria-label': 'A wait' });
    this.waitList.addEventListener('change', () => this.choose(Number(this.waitList.value)));
    this.waitButton = button('remove', 'Remove or restore this wait (x)', 'Remove this wait', () => this.toggleWait());
    this.waitText = make('p', { class: 'player-told' });
    this.found = make('ul', { class: 'player-found', 'aria-live': 'polite' });
    this.code = make('div', { class: 'player-code' });
    this.ranks = make('div', { class: 'player-ranks' });
    const fold = (title, content) => {
      const made = make('details', { class: 'player-fold' }, make('summary', {}, title), content);
      made.open = this.place.dataset.whole !== undefined;
      return made;
    };
    this.place.replaceChildren(fold('Switches', this.form), this.bar, this.chart, this.legend, make('div', { class: 'player-panels' },
      make('div', {}, this.now, make('div', { class: 'player-wait-row' }, this.waitList, this.waitButton), this.waitText,
        this.found), this.code), fold('Ranks', this.ranks));
    this.ranks.closest('details').addEventListener('toggle', () => this.step && drawMoment(this));
    this.place.tabIndex = 0;
    const keys = this.place.dataset.whole !== undefined ? document : this.place;
    keys.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.step && this.chart.clientWidth !== this.width && this.draw(this.index)).observe(this.chart);
  }

  key(event) {
    const inside = event.target.closest?.('select, input:not([type=range]), textarea, summary');
    const acts = { ' ': () => this.toggle(), ArrowLeft: () => this.back(), ArrowRight: () => this.forward(),
      Home: () => this.seek(0, 0), End: () => this.seek(this.end), '[': () => this.nextWait(-1), ']': () => this.nextWait(1),
      x: () => this.toggleWait(), r: () => this.restore() };
    const button = event.key === ' ' && event.target.tagName === 'BUTTON';
    if (!acts[event.key] || inside || button || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  /// Sets a switch and predicts the step again.
  async set(name, value) {
    this.values = { ...this.values, [name]: String(value) };
    this.form.elements[name].value = String(value);
    await this.load();
  }

  async load() {
    const turn = ++this.turn;
    this.pause();
    try {
      const { step, plan } = await predictedStep(this.values);
      if (turn !== this.turn) return; // a later change has its own step
      Object.assign(this, { step, plan, peak: plan.peak.total, removed: new Set(), chosen: undefined, problem: '' });
      this.accesses = accessesOf(step);
      this.waits = waitsOf(step, this.accesses);
      const plain = schedule(step);
      for (const wait of this.waits) {
        const guarded = findingsOf(step, plain, wait.guards).map((one) => one.text);
        wait.text = `${wait.stream === kCompute ? 'computation' : 'communication'} waits for ${
          nameOf(step, wait.waitsFor).replace(/^copies of (\w+) /, 'the $1 of ')}`;
        wait.told = guarded.length ? `Without it nothing forbids that ${guarded.join(', or that ')}.`
          : 'Another wait orders the same work, so this one alone guards nothing.';
      }
      this.waitList.replaceChildren(...this.waits.map((wait) => make('option', { value: wait.entry },
        `${timeText(plain[wait.entry].end)}: ${wait.text}`)));
      this.chosen = (this.waits.find((wait) => wait.guards.length) ?? this.waits[0])?.entry;
      this.time = 0;
      this.draw();
    } catch (error) {
      if (turn !== this.turn) return;
      this.problem = error.message;
      this.chart.replaceChildren(make('p', { class: 'player-problem' }, error.message));
    }
    this.shown = turn;
    this.place.dataset.shown = turn;
  }

  /// Times everything, with the waits that are left, and draws it. `index` is a moment to stay at.
  draw(index) {
    this.times = schedule(this.step, this.removed);
    this.events = eventsOf(this.step, this.times);
    this.moments = momentsOf(this.step, this.events);
    this.findings = findingsOf(this.step, this.times, hazardsOf(this.step, this.times, this.removed, this.accesses));
    this.slots = slotsOf(this.step, this.times, this.accesses);
    this.red = this.findings.filter((one) => one.wrong);
    this.width = this.chart.clientWidth;
    const drawn = drawRows({ ...this, onSeek: (time) => this.seek(time), onWait: (entry) => this.choose(entry) });
    Object.assign(this, { head: drawn.head, at: drawn.place, end: drawn.end });
    this.chart.replaceChildren(drawn.svg);
    drawLegend(this);
    this.found.replaceChildren(...this.findings.map((one) => make('li', { class: one.wrong ? 'player-bad' : 'player-maybe' },
      one.wrong ? `✗ ${one.text}` : `? Right by luck: nothing forbids that ${one.text}`)));
    drawWaitPanel(this);
    this.seek(Math.min(this.time, this.end), index);
  }

  seek(time, index) {
    this.time = time;
    const last = this.moments.filter((moment) => moment.time <= time + 1e-9).length - 1;
    this.index = index ?? Math.max(0, last);
    this.head.setAttribute('transform', `translate(${this.at(time)} 0)`);
    this.slider.value = time / this.end * 1000;
    this.clock.value = `${timeText(time)} of ${timeText(this.end)}`;
    drawMoment(this);
  }

  forward() { this.go(Math.min(this.index + 1, this.moments.length - 1)); }
  back() { this.go(Math.max(this.index - 1, 0)); }
  go(index) {
    this.pause();
    this.seek(this.moments[index].time, index);
  }

  toggle() { this.playing ? this.pause() : this.play(); }
  play() {
    if (!this.step) return;
    if (this.time >= this.end) this.seek(0);
    this.playing = true;
    this.playButton.textContent = '❚❚';
    let before = performance.now();
    const frame = (now) => {
      if (!this.playing) return;
      const time = this.time + Math.max(0, now - before) / 1000 / kSecondsOfStep * this.speed * this.end;
      before = now;
      this.seek(Math.min(time, this.end));
      this.time < this.end ? requestAnimationFrame(frame) : this.pause();
    };
    requestAnimationFrame(frame);
  }
  pause() {
    this.playing = false;
    this.playButton.textContent = '▶';
  }

  choose(entry) {
    this.chosen = entry;
    this.draw(this.index);
  }
  nextWait(by) {
    const at = this.waits.findIndex((wait) => wait.entry === this.chosen);
    this.choose(this.waits[(at + by + this.waits.length) % this.waits.length].entry);
  }
  restore() {
    this.removed.clear();
    this.draw();
  }
  toggleWait(entry = this.chosen) {
    this.chosen = entry;
    this.removed.has(entry) ? this.removed.delete(entry) : this.removed.add(entry);
    this.draw();
    const bad = this.findings.find((one) => one.wrong);
    const index = this.moments.findIndex(({ event }) => event?.name === bad?.name && event?.begin >= bad?.begin);
    if (this.removed.has(entry) && index >= 0) this.go(index);
  }
}

/// Starts a player once it is nearly in sight, for it loads the program.
function startPlayer(place) {
  const start = place.dataset.start ?? decodeURIComponent((location.search || location.hash).slice(1));
  const player = new Player(place, start);
  window.player ??= player;
  new IntersectionObserver((seen, observer) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    observer.disconnect();
    player.load();
  }, { rootMargin: '300px' }).observe(place);
}

document.querySelectorAll('.player').forEach(startPlayer);
