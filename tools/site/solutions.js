'use strict';
// A solution opens after the reader has entered a number. hooks.py puts an element of the class "predict" before each
// solution that has equations; data-results has the numbers on their right sides.

/// Whether a number is one of the results, as rounded as they are or by a tenth of a percent.
function isResult(entered, results) {
  const number = Number(entered.replace(/,/g, ''));
  return results.some((text) => {
    const result = Number(text), decimals = (text.split('.')[1] ?? '').length;
    return Math.abs(number - result) <= Math.max(0.5000001 * 10 ** -decimals, 1e-3 * Math.abs(result));
  });
}

for (const place of document.querySelectorAll('.predict')) {
  let solution = place.nextElementSibling; // Markdown may put an empty paragraph between
  while (solution.tagName !== 'DETAILS') solution = solution.nextElementSibling;
  const results = place.dataset.results.split(' ');
  const input = document.createElement('input'), button = document.createElement('button'), told = document.createElement('span');
  Object.assign(input, { type: 'text', inputMode: 'decimal', placeholder: 'your number', ariaLabel: 'your number' });
  Object.assign(button, { type: 'submit', textContent: 'Compare' });
  const form = document.createElement('form');
  form.append(input, button, told);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (!Number.isFinite(Number(input.value.replace(/,/g, '') || NaN))) {
      told.textContent = 'Enter a number.';
      return;
    }
    told.textContent = isResult(input.value, results) ? 'That is one of its results.' : 'The solution has another number.';
    solution.hidden = false;
    solution.open = true;
  });
  solution.hidden = true;
  place.replaceChildren(form);
}
