'use strict';
// The switches of the step player, and the arguments of `tessera plan` that they stand for.

/// A unit's buckets as sharding.buckets names them. The embedding, which is also the head, is always one.
function bucketsOf(unit, blocks) {
  const every = { 'one block': 1, 'two blocks': 2, 'all blocks': blocks }[unit];
  if (every === 1) return 'unit';
  const firsts = [];
  for (let block = 0; block < blocks; block += every) firsts.push(`h.${block}`);
  return ['embedding', ...firsts].join(',');
}

const kRowTokens = 128;
/// Each switch: its label, its choices with the first value, and the keys of docs/configuration.md that it sets.
const kSwitches = [
  ['strategy', 'Strategy', ['ddp', 'zero1', 'zero2', 'zero3', 'fsdp', 'hsdp'], 'fsdp',
    ({ strategy }) => [`sharding.strategy=${strategy}`]],
  ['ranks', 'Ranks', ['2', '3', '4', '5', '6', '7', '8'], '4', ({ ranks }) => ['--ranks', ranks]],
  ['nodes', 'Nodes', ['1', '2'], '1', ({ nodes }) => ['--nodes', nodes]],
  ['blocks', 'Blocks', ['2', '3', '4', '6', '8'], '4', ({ blocks }) => [`model.layers=${blocks}`]],
  ['unit', 'Size of a unit', ['one block', 'two blocks', 'all blocks'], 'one block',
    ({ unit, blocks }) => [`sharding.buckets=${bucketsOf(unit, Number(blocks))}`]],
  ['live', 'Live gathers', ['1', '2', '3', '4'], '2', ({ live }) => [`sharding.live_gathers=${live}`]],
  ['prefetch', 'Prefetch in', ['both', 'forward', 'backward', 'none'], 'both',
    ({ prefetch }) => [`sharding.prefetch=${prefetch}`]],
  ['reshard', 'Reshard', ['true', 'false'], 'true',
    ({ reshard }) => [`sharding.reshard_after_forward=${reshard}`]],
  ['tokens', 'Tokens of a rank', ['128', '256', '512', '1024', '2048'], '256',
    ({ tokens, micro }) => [`data.rows_per_rank=${tokens / kRowTokens * micro}`, `data.sequence_length=${kRowTokens}`]],
  ['micro', 'Micro-batches', ['1', '2', '3', '4'], '1', ({ micro }) => [`data.accumulation_steps=${micro}`]],
  ['checkpointing', 'Checkpointing', ['none', 'every 2', 'full'], 'none',
    ({ checkpointing }) => [`sharding.activation_checkpointing=${checkpointing}`]],
  ['bandwidth', 'Link, GB/s', ['5', '20', '50', '100', '200', '450', '900'], '450', () => []],
  ['latency', 'Latency, µs', ['0', '2', '5', '20', '50'], '2', () => []],
];

/// The file that the argument --machine names: an H100's rates in f32, and the switches' link. Between nodes the
/// bandwidth is a ninth, as of an H100's network card and its NVLink.
function machineText({ bandwidth, latency }) {
  const link = (share) => ({ ranks: 1, latency_us: Number(latency), bytes_per_second: bandwidth * 1e9 / share });
  const compute = { ranks: 1, threads: 1, dtype: 'f32', forward_flops_per_second: 66.9e12,
    backward_flops_per_second: 66.9e12, memory_bytes_per_second: 3350e9 };
  return JSON.stringify({ name: 'the player', source: 'its switches', cores: 0, rings: true, compute: [compute],
    links: [link(1)], network: link(9) });
}

/// The arguments of `tessera` for the values of all switches, but for --trace. A small GPT-2 has blocks that take as
/// long as its head.
function planArguments(values, machine) {
  const given = kSwitches.flatMap(([, , , , argumentsOf]) => argumentsOf(values).map(String));
  return ['plan', 'gpt2', ...given, '--machine', machine, 'model.vocab_size=4096', 'runtime.threads=1',
    'runtime.compute_dtype=f32'];
}

/// The values that every switch begins with.
function firstValues() {
  return Object.fromEntries(kSwitches.map(([name, , , first]) => [name, first]));
}

/// "strategy=fsdp ranks=4" or "strategy=fsdp&ranks=4" as values; what is not a switch's is left out. A space in a
/// value is written "_".
function startValues(text) {
  const values = firstValues();
  for (const word of text.split(/[\s&]+/)) {
    const [name, value = ''] = word.split('=');
    const one = kSwitches.find(([known]) => known === name);
    const wanted = decodeURIComponent(value).replace(/_/g, ' ');
    if (one && one[2].includes(wanted)) values[name] = wanted;
  }
  return values;
}

if (typeof module !== 'undefined') {
  module.exports = { kSwitches, planArguments, machineText, firstValues, startValues };
}
