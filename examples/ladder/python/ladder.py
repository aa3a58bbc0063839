"""The parts that all rungs share: the model, the batches, the collectives, and the printed line.

A rung is a program that trains one small model, a mixture of experts with four blocks, on N ranks. It is the twin of
the C++ program of the same name (../), with the same initial values, batches and bytes sent. "held" is the memory of
values, gradients, moments and slots, as NAME N --state of the C++ program prints it: PyTorch has other activations.
Ranks are processes, and gloo moves their tensors. The first loss agrees to seven digits. Rounding grows from step to
step, because AdamW divides by the roots of small numbers, so the line has no hash.
"""
import argparse
import math
import os
import pathlib
import sys
import tempfile
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F

STEPS, SEED, LEARNING_RATE = 8, 1, 0.01
VOCABULARY, TOKENS, WIDTH, LAYERS, HEADS, HEAD = 256, 32, 64, 4, 2, 32
EXPERTS, CHOSEN, EXPERT_WIDTH = 4, 2, 32
FLOAT = 4  # bytes


# Random numbers that are addressed, not drawn: runtime/random.h.

def philox(counter, key):
    """Ten rounds of Philox4x32: four words for a counter of four and a key of two."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


class RandomStream:
    """A sequence of random numbers with a name and two numbers."""

    def __init__(self, name, first=0, second=0):
        self.stream = 0xCBF29CE484222325  # FNV-1a
        for byte in name.encode() + first.to_bytes(8, "little") + second.to_bytes(8, "little"):
            self.stream = (self.stream ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF

    def block(self, index):
        return philox([index & 0xFFFFFFFF, index >> 32, self.stream & 0xFFFFFFFF, self.stream >> 32], [SEED, 0])

    def below(self, index, bound):
        words = self.block(index)
        return ((words[0] << 32 | words[1]) * bound) >> 64

    def normal(self, begin, end):
        """Elements [begin, end) of a standard normal sequence, by Box-Muller."""
        values = []
        for index in range(begin // 4, (end + 3) // 4):
            words = self.block(index)
            for u, v in (words[:2], words[2:]):
                radius = math.sqrt(-2 * math.log(1 - (u >> 8) * 2.0**-24))
                angle = 2 * math.pi * (v >> 8) * 2.0**-24
                values += [radius * math.cos(angle), radius * math.sin(angle)]
        first = begin // 4 * 4
        return torch.tensor(values[begin - first:end - first], dtype=torch.float32)


# The model: Qwen3-MoE, as a list of units.

@dataclass
class Parameter:
    name: str
    shape: tuple
    stacked: bool = False  # the matrices of all experts

    @property
    def count(self):
        return math.prod(self.shape)

    def initial(self, begin=0, end=None):
        """Elements of the initial value."""
        end = self.count if end is None else end
        if "norm" in self.name:
            return torch.ones(end - begin)
        return (0.02 * RandomStream(self.name).normal(begin, end).double()).float()


@dataclass
class Unit:
    name: str
    parameters: list
    compute: object  # (values, x) -> x
    values: dict = field(default_factory=dict)  # open windows, by the last parts of the parameters' names
    gradients: dict = field(default_factory=dict)

    @property
    def elements(self):
        return sum(parameter.count for parameter in self.parameters)


def norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, eps=1e-6)


def rotated(x):
    """Rotary positions: channel c and channel c + HEAD / 2 are a pair."""
    angles = torch.arange(TOKENS)[:, None] * 1e6 ** (-torch.arange(0, HEAD, 2) / HEAD)
    first, second = x.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def attention(v, x):
    q, k, values = (F.linear(x, v[f"{name}_proj.weight"]).view(TOKENS, HEADS, HEAD).transpose(0, 1) for name in "qkv")
    q, k = rotated(norm(q, v["q_norm.weight"])), rotated(norm(k, v["k_norm.weight"]))
    return F.linear(F.scaled_dot_product_attention(q, k, values, is_causal=True).transpose(0, 1).reshape(TOKENS, WIDTH),
                    v["o_proj.weight"])


def expert(x, gate_up, down):
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


def routed(v, x):
    """Which rows of x go to which expert, and their weights: lists by expert."""
    logits = F.linear(x, v["gate.weight"])
    chosen = logits.topk(CHOSEN).indices
    weights = torch.zeros_like(logits).scatter(1, chosen, logits.gather(1, chosen).softmax(-1))
    rows = [(chosen == e).any(1).nonzero()[:, 0] for e in range(EXPERTS)]
    return rows, [weights[rows[e], e] for e in range(EXPERTS)]


def local_experts(v, x, rows, weights):
    """The experts' results for their rows, weighed: all experts are here."""
    return [weights[e][:, None] * expert(x[rows[e]], v["gate_up_proj"][e], v["down_proj"][e]) for e in range(EXPERTS)]


class Block:
    """A block's computation. Rung 9 has another function for the experts."""
    experts = staticmethod(local_experts)

    def __call__(self, v, x):
        x = x + attention(v, norm(x, v["input_layernorm.weight"]))
        h = norm(x, v["post_attention_layernorm.weight"])
        rows, weights = routed(v, h)
        for e, y in enumerate(self.experts(v, h, rows, weights)):
            x = x.index_add(0, rows[e], y)
        return x


def make_units():
    def block(layer):
        prefix, square = f"model.layers.{layer}.", (WIDTH, WIDTH)
        return Unit(f"layers.{layer}", [
            *(Parameter(f"{prefix}self_attn.{name}_proj.weight", square) for name in "qkvo"),
            *(Parameter(f"{prefix}self_attn.{name}_norm.weight", (HEAD,)) for name in "qk"),
            Parameter(f"{prefix}mlp.gate.weight", (EXPERTS, WIDTH)),
            Parameter(f"{prefix}mlp.experts.gate_up_proj", (EXPERTS, 2 * EXPERT_WIDTH, WIDTH), stacked=True),
            Parameter(f"{prefix}mlp.experts.down_proj", (EXPERTS, WIDTH, EXPERT_WIDTH), stacked=True),
            Parameter(f"{prefix}input_layernorm.weight", (WIDTH,)),
            Parameter(f"{prefix}post_attention_layernorm.weight", (WIDTH,))], Block())
    table = (VOCABULARY, WIDTH)
    embedding = Unit("embedding", [Parameter("model.embed_tokens.weight", table)],
                     lambda v, ids: v["embed_tokens.weight"][ids])
    head = Unit("head", [Parameter("model.norm.weight", (WIDTH,)), Parameter("lm_head.weight", table)],
                lambda v, x: F.linear(norm(x, v["norm.weight"]), v["lm_head.weight"]))
    return [embedding, *(block(layer) for layer in range(LAYERS)), head]


def key_of(parameter):
    """The last parts of a name: "q_proj.weight", "gate_up_proj"."""
    parts = parameter.name.split(".")
    return ".".join(parts[-2:] if parts[-1] == "weight" else parts[-1:])


def row(step, part):
    """A part of a batch: one row that begins anywhere and goes on by a rule, which the model can learn."""
    tokens = [RandomStream("rows", step, part).below(0, VOCABULARY)]
    while len(tokens) <= TOKENS:
        tokens.append((tokens[-1] * 5 + 3) % VOCABULARY)
    return torch.tensor(tokens)


# Collectives, which count the bytes that all ranks send.

class World:
    """A group of ranks. Every call returns an event with wait(); nothing is there before."""

    def __init__(self, ranks, rank, group=None, sent=None):
        self.ranks, self.rank, self.group = ranks, rank, group
        self.sent = sent if sent is not None else [0]  # by this rank
        self.members = list(range(ranks)) if group is None else dist.get_process_group_ranks(group)

    def split(self, color):
        """A group of the ranks that pass the same color."""
        colors = [None] * self.ranks
        dist.all_gather_object(colors, color)
        for one in sorted(set(colors)):
            members = [rank for rank in range(self.ranks) if colors[rank] == one]
            group = dist.new_group(members)
            if one == color:
                mine = World(len(members), members.index(self.rank), group, self.sent)
        return mine

    def count(self, bytes_of_all_ranks):
        """Adds this rank's share."""
        self.sent[0] += bytes_of_all_ranks / self.ranks

    def all_reduce(self, tensor):
        self.count(2 * (self.ranks - 1) * tensor.numel() * FLOAT)
        return dist.all_reduce(tensor, group=self.group, async_op=True)

    def broadcast(self, tensor, owner):
        self.count((self.ranks - 1) * tensor.numel() * FLOAT)
        return dist.broadcast(tensor, self.members[owner], group=self.group, async_op=True)

    def reduce(self, tensor, owner):
        """A reduce-scatter, and each rank's part to the owner."""
        self.count((self.ranks - 1) * (1 + 1 / self.ranks) * tensor.numel() * FLOAT)
        return dist.reduce(tensor, self.members[owner], group=self.group, async_op=True)

    def all_gather(self, whole):
        """Every rank's own part of `whole`, on all ranks."""
        self.count((self.ranks - 1) * whole.numel() * FLOAT)
        parts = list(whole.view(-1).chunk(self.ranks))
        return dist.all_gather(parts, parts[self.rank].clone(), group=self.group, async_op=True)

    def reduce_scatter(self, own, whole):
        """The sum of this rank's part of `whole`, in `own`: for gloo, a reduce for each rank."""
        self.count((self.ranks - 1) * whole.numel() * FLOAT)
        parts = whole.view(-1).chunk(self.ranks)
        events = [dist.reduce(part, self.members[r], group=self.group, async_op=True) for r, part in enumerate(parts)]
        return Events(events, lambda: own.view(-1).copy_(parts[self.rank]))

    def all_to_all(self, received, sent):
        """Part r of `sent` goes to rank r: lists of tensors."""
        self.sent[0] += sum(part.numel() * part.element_size() for r, part in enumerate(sent) if r != self.rank)
        works = [dist.isend(part.contiguous(), self.members[r], group=self.group) for r, part in enumerate(sent)
                 if r != self.rank and part.numel()]
        received[self.rank].copy_(sent[self.rank])
        works += [dist.irecv(part, self.members[r], group=self.group) for r, part in enumerate(received)
                  if r != self.rank and part.numel()]
        Events(works).wait()


class Events:
    """Several events as one, and a piece of work behind them."""

    def __init__(self, events, then=lambda: None):
        self.events, self.then = events, then

    def wait(self):
        for event in self.events:
            event.wait()
        self.events = []
        self.then()
        self.then = lambda: None


# What a rung is derived from.

class Rung:
    """A rank that trains. A rung overrides prepare, step and the hooks that it needs."""

    def __init__(self, world, parts):
        self.world, self.rank, self.ranks, self.parts = world, world.rank, world.ranks, parts
        self.units, self.losses, self.held, self.in_backward = make_units(), {}, 0, False

    def prepare(self): ...
    def step(self, number): ...
    def before_use(self, unit): ...  # in forward and in backward
    def after_use(self, unit): ...
    def before_gradients(self, unit): ...
    def after_gradients(self, unit): ...

    def zeros(self, elements):
        """f32 zeros, which count as held."""
        self.held += elements * FLOAT
        return torch.zeros(elements)

    def adamw(self, shards):
        """AdamW over pairs of values and gradients. Its two moments count as held."""
        for values, gradients in shards:
            values.grad = gradients
            self.held += 2 * values.numel() * FLOAT
        return torch.optim.AdamW([values for values, _ in shards], lr=LEARNING_RATE, weight_decay=0.0, foreach=False)

    def next(self, unit):
        """The unit that is used next in this pass, or None."""
        index = self.units.index(unit) + (-1 if self.in_backward else 1)
        return self.units[index] if 0 <= index < len(self.units) else None

    def loss(self, number, part):
        """Forward: the loss of a part of the step's batch, as a share of the mean over the batch."""
        tokens = row(number, part)
        x, self.tape, self.in_backward = tokens[:-1], [], False
        for unit in self.units:
            self.before_use(unit)
            if self.next(unit) is None:
                self.before_gradients(unit)  # the head computes its gradients in forward, together with the loss
            leaves = {key: leaf_of(value) for key, value in unit.values.items()}
            given = x.detach().requires_grad_() if x.is_floating_point() else x
            with saved_as_windows(unit):
                x = unit.compute(leaves, given)
                if self.next(unit) is None:
                    x = F.cross_entropy(x, tokens[1:], reduction="sum") / (TOKENS * self.parts)
            self.tape.append((unit, given, leaves, x))
            self.after_use(unit)
        self.losses[number, part] = x.item()
        return x

    def backward(self, loss):
        gradient, self.in_backward = torch.ones_like(loss), True
        for unit, given, leaves, result in reversed(self.tape):
            self.before_use(unit)
            if self.next(unit) is None or unit is not self.units[-1]:
                self.before_gradients(unit)
            result.backward(gradient)
            gradient = given.grad
            for key, leaf in leaves.items():
                for window, one in zip(many(unit.gradients[key]), many(leaf)):
                    window.copy_(torch.zeros_like(window) if one.grad is None else one.grad)
            self.after_use(unit)
            self.after_gradients(unit)
        self.tape = []


def many(value):
    return value if isinstance(value, list) else [value]


def leaf_of(value):
    """What autograd differentiates by: a view of an open window, or of several."""
    leaves = [one.detach().requires_grad_() for one in many(value)]
    return leaves if isinstance(value, list) else leaves[0]


def saved_as_windows(unit):
    """Autograd saves weights for backward. Here it saves their places in the unit's windows, which may move."""
    def pack(tensor):
        for key, window in unit.values.items():
            window = many(window)[0]
            offset = (tensor.data_ptr() - window.data_ptr()) // FLOAT
            same_memory = tensor.untyped_storage().data_ptr() == window.untyped_storage().data_ptr()
            if same_memory and 0 <= offset < window.numel():
                return key, tensor.shape, tensor.stride(), offset
        return tensor
    def unpack(saved):
        if isinstance(saved, torch.Tensor):
            return saved
        key, shape, stride, offset = saved
        window = many(unit.values[key])[0]
        return window.as_strided(shape, stride, window.storage_offset() + offset)
    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def windows_of(unit, buffer):
    """The window of each parameter in a unit's buffer, by its key."""
    windows, begin = {}, 0
    for parameter in unit.parameters:
        windows[key_of(parameter)] = buffer[begin:begin + parameter.count].view(parameter.shape)
        begin += parameter.count
    return windows


def initialize(unit, buffer):
    buffer[:unit.elements] = torch.cat([parameter.initial() for parameter in unit.parameters])


def open_values(unit, buffer):
    unit.values = windows_of(unit, buffer)


def close_values(unit):
    unit.values = {}


def open_gradients(unit, buffer):
    unit.gradients = windows_of(unit, buffer)


def most_elements(units):
    return max(unit.elements for unit in units)


def tree_sum(tensors):
    """The sum in the order of the tree over ranks."""
    if len(tensors) == 1:
        return tensors[0]
    half = 1 << (len(tensors) - 1).bit_length() - 1
    return tree_sum(tensors[:half]) + tree_sum(tensors[half:])


# main() of a rung.

def run_rank(rank, make, ranks, parts, digits, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    world = World(ranks, rank)
    rung = make(world, parts)
    rung.prepare()
    for number in range(STEPS):
        rung.step(number)
        if number == 0:
            world.sent[0] = 0
    outcomes = [None] * ranks
    dist.all_gather_object(outcomes, (rung.losses, int(world.sent[0] / (STEPS - 1) + 1e-6), rung.held))
    if rank == 0:
        losses = {key: value for one, _, _ in outcomes for key, value in one.items()}
        first, last = (tree_sum([losses[number, part] for part in range(parts)]) for number in (0, STEPS - 1))
        sent, held = sum(sent for _, sent, _ in outcomes), max(held for _, _, held in outcomes)
        name = pathlib.Path(sys.argv[0]).stem
        print(f"{name:17} N = {parts}  loss {first:.{digits}f} -> {last:.{digits}f}  {'-' * 16}  "
              f"sent {sent:7}  held {held:7}")
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # gloo's threads may still run, and a destructor of one of them would abort the process


def climb(make, one_rank=False):
    """Trains on N ranks, or on one rank that computes all N parts, and prints a line."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--ranks", type=int, choices=(2, 4), help="N; without it both are run")
    parser.add_argument("--digits", type=int, default=4, help="of the losses")
    asked = parser.parse_args()
    for parts in (asked.ranks,) if asked.ranks else (2, 4):
        ranks = 1 if one_rank else parts
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(run_rank, (make, ranks, parts, asked.digits, folder), nprocs=ranks)
