'use strict';
// What the calculator's page and the step player share: elements, and numbers as text.

const kShapes = ['svg', 'g', 'rect', 'text', 'title', 'line', 'path', 'polygon', 'circle', 'defs', 'pattern'];

/// An element of HTML or SVG with its attributes and children.
function make(name, attributes = {}, ...children) {
  const made = kShapes.includes(name) ? document.createElementNS('http://www.w3.org/2000/svg', name)
                                      : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/// 1234567890 -> "1.15 GiB".
function bytesText(bytes) {
  for (const [unit, size] of [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (bytes >= size) return `${(bytes / size).toPrecision(3)} ${unit}`;
  }
  return `${bytes} B`;
}
