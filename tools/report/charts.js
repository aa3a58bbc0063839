'use strict';
// Charts in SVG: lines, stacked areas and a heat map. Each is drawn anew for the width of its box.

const colour = index => `var(--c${index % 8})`;

/// 1234567 -> "1.23M", 0.00012 -> "1.2e-4": at most four digits that count.
function short(value) {
  if (value === null || value === undefined || !isFinite(value)) return '-';
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + 'G';
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + 'M';
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + 'k';
  if (size < 1e-4) return value.toExponential(1);
  return String(+value.toPrecision(4));
}

function element(name, attributes = {}, ...children) {
  const svg = ['svg', 'path', 'line', 'text', 'circle', 'rect', 'g'].includes(name);
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', name)
                   : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/// Round numbers from `least` to `most`, about `count` of them.
function ticks(least, most, count) {
  const rough = (most - least) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(digit => digit * power).find(size => size >= rough);
  const found = [];
  for (let at = Math.ceil(least / step); at * step <= most + step * 1e-9; ++at) {
    found.push(+(at * step).toPrecision(12));
  }
  return found;
}

/// The powers of ten from `least` to `most`, with 2 and 5 between them if these are few; round numbers
/// of a narrow range.
function logTicks(least, most) {
  if (most / least < 8) return ticks(least, most, 4);
  const found = [];
  const wide = Math.log10(most / least) > 2.5;
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); ++power) {
    for (const digit of wide ? [1] : [1, 2, 5]) {
      const value = +(digit * 10 ** power).toPrecision(3);
      if (value >= least * 0.999 && value <= most * 1.001) found.push(value);
    }
  }
  return found;
}

const kMargin = { left: 52, right: 12, top: 10, bottom: 26 };

/// The axes of a chart of this width, and the maps from values to places.
function frame(width, height, xRange, yRange, logarithmic, xLabel) {
  const svg = element('svg', { height, viewBox: `0 0 ${width} ${height}`, role: 'img' });
  const right = width - kMargin.right, bottom = height - kMargin.bottom;
  const scale = (value, [from, to], a, b) => a + (b - a) * (to === from ? 0.5 : (value - from) / (to - from));
  const x = value => scale(value, xRange, kMargin.left, right);
  const bend = logarithmic ? Math.log : value => value;
  const y = value => scale(bend(value), yRange.map(bend), bottom, kMargin.top);
  for (const tick of logarithmic ? logTicks(...yRange) : ticks(...yRange, 5)) {
    svg.append(element('line', { class: 'gridline', x1: kMargin.left, x2: right, y1: y(tick), y2: y(tick) }),
               element('text', { x: kMargin.left - 6, y: y(tick) + 4, 'text-anchor': 'end' }, short(tick)));
  }
  for (const tick of ticks(...xRange, Math.max(2, Math.floor(width / 110)))) {
    if (x(tick) < kMargin.left + 10) continue;  // there the label of the axis stands
    svg.append(element('text', { x: x(tick), y: bottom + 17, 'text-anchor': 'middle' }, short(tick)));
  }
  svg.append(element('line', { class: 'axis', x1: kMargin.left, x2: right, y1: bottom, y2: bottom }),
             element('text', { x: kMargin.left - 8, y: bottom + 17, 'text-anchor': 'end' }, xLabel));
  return { svg, x, y, right, bottom };
}

function rangeOf(values) {
  let least = Infinity, most = -Infinity;
  for (const value of values) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return least <= most ? [least, most] : [0, 1];
}

/// The index of the value that is nearest to `wanted` in a rising list.
function nearest(values, wanted) {
  let low = 0, high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    values[middle] < wanted ? low = middle : high = middle;
  }
  return Math.abs(values[low] - wanted) <= Math.abs(values[high] - wanted) ? low : high;
}

/// A box whose chart is drawn by draw(width) and follows the box's width. draw returns the frame and
/// tip(x), the lines of text and the place of the values next to a pointer.
function chart(draw) {
  const box = element('div', { class: 'chart' });
  const tip = element('div', { class: 'tip', hidden: '' });
  let drawn = null, before = 0;
  const redraw = () => {
    const width = Math.round(box.clientWidth);
    if (width < 80 || width === before) return;
    before = width;
    drawn = draw(width);
    tip.hidden = true;
    box.replaceChildren(drawn.frame.svg, tip);
  };
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(box);
  const move = event => {
    if (!drawn || !drawn.tip) return;
    const found = drawn.tip(event.clientX - box.getBoundingClientRect().left);
    if (!found) return;
    tip.replaceChildren(...found.lines);
    tip.hidden = false;
    const room = box.clientWidth - tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(room, found.x + 12)) + 'px';
    tip.style.top = kMargin.top + 'px';
    let cursor = drawn.frame.svg.querySelector('.cursor');
    if (!cursor) drawn.frame.svg.append(cursor = element('line', { class: 'axis cursor' }));
    for (const [key, value] of Object.entries({ x1: found.x, x2: found.x, y1: kMargin.top, y2: drawn.frame.bottom })) {
      cursor.setAttribute(key, value);
    }
  };
  box.addEventListener('pointermove', move);
  box.addEventListener('pointerdown', move);
  box.addEventListener('pointerleave', () => {
    tip.hidden = true;
    const cursor = drawn && drawn.frame.svg.querySelector('.cursor');
    if (cursor) cursor.remove();
  });
  return box;
}

function tipLine(color, text) {
  const line = element('div');
  if (color) {
    const key = element('span', { class: 'key' });
    key.style.background = color;
    line.append(key);
  }
  line.append(text);
  return line;
}

function path(xs, ys, x, y) {
  let d = '', open = false;
  xs.forEach((at, i) => {
    const value = ys[i];
    if (value === null || value === undefined || !isFinite(value)) { open = false; return; }
    d += `${open ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  });
  return d;
}

/// Lines. series: [{name, color, x, y, dashed, dots}]; options: {xLabel, log, zero, marks, unit}.
/// marks are {x, label} of events.
function lineChart(series, options = {}) {
  return chart(width => {
    const known = series.flatMap(one => one.y.filter(v => v !== null && isFinite(v) && (!options.log || v > 0)));
    let yRange = rangeOf(known);
    if (options.zero) yRange = [Math.min(0, yRange[0]), yRange[1] * 1.05 || 1];
    if (yRange[0] === yRange[1]) yRange = options.log ? [yRange[0] / 2, yRange[1] * 2] : [yRange[0] - 0.5, yRange[1] + 0.5];
    const xRange = rangeOf(series.flatMap(one => rangeOf(one.x)));
    const f = frame(width, options.height || 230, xRange, yRange, options.log, options.xLabel);
    for (const mark of options.marks || []) {
      const line = element('line', { class: 'axis', x1: f.x(mark.x), x2: f.x(mark.x), y1: kMargin.top, y2: f.bottom, 'stroke-dasharray': '2 3' });
      line.append(element('title', {}, mark.label));
      f.svg.append(line);
    }
    for (const one of series) {
      f.svg.append(element('path', {
        d: path(one.x, one.y.map(v => options.log && !(v > 0) ? null : v), f.x, f.y), fill: 'none', stroke: one.color,
        'stroke-width': one.thin ? 1 : 1.8, 'stroke-linejoin': 'round', 'stroke-opacity': one.thin ? 0.55 : 1,
        ...(one.dashed ? { 'stroke-dasharray': '5 4' } : {}) }));
      if (one.dots || one.x.length === 1) {
        one.x.forEach((at, i) => {
          if (one.y[i] !== null) f.svg.append(element('circle', { cx: f.x(at), cy: f.y(one.y[i]), r: 2.6, fill: one.color }));
        });
      }
    }
    const tip = px => {
      const rows = [];
      let shown = null;
      const wanted = xRange[0] + (xRange[1] - xRange[0]) * (px - kMargin.left) / (f.right - kMargin.left);
      for (const one of series) {
        const usable = one.x.map((_, i) => i).filter(i => one.y[i] !== null && isFinite(one.y[i]));
        if (!usable.length) continue;
        const i = usable[nearest(usable.map(k => one.x[k]), wanted)];
        if (shown === null) shown = one.x[i];
        rows.push(tipLine(one.color, `${one.name}  ${short(one.y[i])}${options.unit ? ' ' + options.unit : ''}`));
      }
      if (shown === null) return null;
      return { x: f.x(shown), lines: [tipLine(null, `${options.xLabel} ${short(shown)}`), ...rows] };
    };
    return { frame: f, tip };
  });
}

/// Areas on top of each other. layers: [{name, color, y}] over the common list x; `total` is a line.
function areaChart(x, layers, options = {}) {
  return chart(width => {
    const sums = x.map((_, i) => layers.reduce((sum, layer) => sum + (layer.y[i] || 0), 0));
    const most = Math.max(rangeOf(sums)[1], options.total ? rangeOf(options.total)[1] : 0, 1e-12);
    const f = frame(width, options.height || 230, rangeOf(x), [0, most * 1.05], false, options.xLabel);
    let below = x.map(() => 0);
    for (const layer of layers) {
      const above = below.map((b, i) => b + (layer.y[i] || 0));
      const stepped = options.stepped;
      const edge = (ys, backwards) => {
        const order = x.map((_, i) => i);
        const points = order.flatMap(i => stepped && i + 1 < x.length ? [[x[i], ys[i]], [x[i + 1], ys[i]]] : [[x[i], ys[i]]]);
        return (backwards ? points.reverse() : points).map(([a, b]) => `${f.x(a).toFixed(1)} ${f.y(b).toFixed(1)}`).join('L');
      };
      f.svg.append(element('path', { d: `M${edge(above, false)}L${edge(below, true)}Z`, fill: layer.color, 'fill-opacity': 0.75 }));
      below = above;
    }
    if (options.total) {
      f.svg.append(element('path', { d: path(x, options.total, f.x, f.y), fill: 'none', stroke: 'var(--text)', 'stroke-width': 1.5 }));
    }
    const tip = px => {
      const [from, to] = rangeOf(x);
      const i = nearest(x, from + (to - from) * (px - kMargin.left) / (f.right - kMargin.left));
      const lines = layers.map(layer => tipLine(layer.color, `${layer.name}  ${short(layer.y[i])} ${options.unit}`)).reverse();
      if (options.total) lines.unshift(tipLine('var(--text)', `${options.totalName}  ${short(options.total[i])} ${options.unit}`));
      return { x: f.x(x[i]), lines: [tipLine(null, `${options.xLabel} ${short(x[i])}`), ...lines] };
    };
    return { frame: f, tip };
  });
}

/// Rows of cells over x; a deeper colour is a larger value. rows: [{name, y}]; options: {xLabel, log}.
function heatMap(x, rows, options = {}) {
  const height = Math.max(70, rows.length * 22 + kMargin.top + kMargin.bottom);
  return chart(width => {
    const f = frame(width, height, rangeOf(x), [0, rows.length], false, options.xLabel);
    f.svg.querySelectorAll('.gridline').forEach(line => line.remove());
    f.svg.querySelectorAll('text[text-anchor=end]').forEach(text => text.textContent === options.xLabel || text.remove());
    const bend = options.log ? Math.log : value => value;
    const [least, most] = rangeOf(rows.flatMap(row => row.y.filter(v => v !== null))).map(bend);
    rows.forEach((row, r) => {
      f.svg.append(element('text', { x: kMargin.left - 6, y: f.y(r + 0.5) + 4, 'text-anchor': 'end' }, row.name));
      x.forEach((at, i) => {
        if (row.y[i] === null || row.y[i] === undefined) return;
        const end = i + 1 < x.length ? f.x(x[i + 1]) : f.right;
        const start = f.x(at);
        const share = most > least ? (bend(row.y[i]) - least) / (most - least) : 0.5;
        f.svg.append(element('rect', { x: start, y: f.y(r + 1) + 1, width: Math.max(1, end - start), height: f.y(r) - f.y(r + 1) - 2, fill: `rgba(var(--heat), ${(0.08 + 0.9 * share).toFixed(3)})` }));
      });
    });
    const tip = px => {
      const [from, to] = rangeOf(x);
      const i = nearest(x, from + (to - from) * (px - kMargin.left) / (f.right - kMargin.left));
      return { x: f.x(x[i]), lines: [tipLine(null, `${options.xLabel} ${short(x[i])}`),
        ...rows.map(row => tipLine(null, `${row.name}  ${short(row.y[i])}`)).reverse()] };
    };
    return { frame: f, tip };
  });
}
