// Run by player_test.py under node: times each step again, and removes its waits one by one.
//
//   node player_test.js MODEL TRACE...   prints a line of JSON for each trace
const fs = require('fs');
const { timesOf, eventsOf, racesOf, waitsOf, accessesOf } = require(require('path').resolve(process.argv[2]));

for (const file of process.argv.slice(3)) {
  const { step } = JSON.parse(fs.readFileSync(file));
  const accesses = accessesOf(step), told = ({ text, piece, unit, wrong }) => ({ text, piece, unit, wrong });
  const removed = waitsOf(step).map((wait) => {
    const without = new Set([wait.entry]);
    return { text: wait.text, races: racesOf(step, timesOf(step, without), without, accesses).map(told) };
  });
  console.log(JSON.stringify({
    events: eventsOf(step, timesOf(step)).map(({ name, begin, end }) => ({ name, begin, end })),
    races: racesOf(step, timesOf(step), new Set(), accesses).map(told),
    accesses: accesses.length,
    removed,
  }));
}
