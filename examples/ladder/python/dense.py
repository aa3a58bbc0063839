"""The model of rungs 10 and 11, the twin of ../dense.h: dense, with four blocks of four heads.

A row of tokens is eight pieces of four tokens. Activations are [pieces, rows, tokens of a piece, channels]. The pieces
come in the order 0, 7, 1, 6, 2, 5, 3, 4, so equal shares of them have equally many keys to see. A matrix of a block
has four slices, [slices, rows of a slice, columns]; its first slices are those of the first heads, or of the first
inner channels. The C++ program adds fixed parts of each sum in a tree. PyTorch adds in another order.
"""
import math

import torch
import torch.nn.functional as F

import ladder

SLICES, PIECES, INNER = 4, 8, 32  # INNER: inner channels of the feed-forward layer, of a slice
HEAD, PIECE_TOKENS = ladder.WIDTH // SLICES, ladder.TOKENS // PIECES
ORDER = [place // 2 if place % 2 == 0 else PIECES - 1 - place // 2 for place in range(PIECES)]


class Model:
    """All weights, with the slices [first, last) of the matrices of blocks."""

    def __init__(self, rung, first, last):
        self.rung, self.whole, self.sliced = rung, [], []  # pairs of values and gradients
        self.embedding = self.weight("embedding", ladder.VOCABULARY, ladder.WIDTH)
        self.blocks = []
        for number in range(ladder.LAYERS):
            name = f"blocks.{number}."
            block = {key: self.weight(name + key, ladder.WIDTH) for key in ("norm", "mlp_norm")}
            for key, rows in (("qkv", 3 * HEAD), ("out", HEAD), ("gate_up", 2 * INNER), ("down", INNER)):
                block[key] = self.slices(name + key, first, last, rows)
            self.blocks.append(block)
        self.norm = self.weight("norm", ladder.WIDTH)
        self.head = self.weight("head", 1, ladder.VOCABULARY, ladder.WIDTH)
        self.optimizer = rung.adamw(self.whole + self.sliced)

    def weight(self, name, *shape):
        return self.part(self.whole, name, 0, shape)

    def slices(self, name, first, last, rows):
        return self.part(self.sliced, name, first * rows * ladder.WIDTH, (last - first, rows, ladder.WIDTH))

    def part(self, weights, name, begin, shape):
        """The elements of a weight from `begin` on, with a gradient that backward adds to."""
        values, gradients = (self.rung.zeros(math.prod(shape)).view(shape) for _ in range(2))
        values.copy_(ladder.Parameter(name, shape).initial(begin, begin + values.numel()).view(shape))
        weights.append((values.requires_grad_(), gradients))
        return values

    def reset_gradients(self):
        for _, gradients in self.whole + self.sliced:
            gradients.zero_()


def tokens_of(step, rows, first, last):
    """The pieces [first, last) of a step's batch: inputs and targets [pieces, rows, tokens of a piece]."""
    tokens = torch.stack([ladder.row(step, part) for part in range(rows)])
    def pieces(whole):
        return whole.view(rows, PIECES, PIECE_TOKENS).transpose(0, 1)[ORDER[first:last]]
    return pieces(tokens[:, :-1]), pieces(tokens[:, 1:])


def by_columns(x, weight):
    """A matrix that is cut by its results."""
    return F.linear(x, weight.flatten(0, 1))


def by_rows(x, weight):
    """A matrix that is cut by its inputs: the sum over the slices that are here."""
    return x @ weight.flatten(0, 1)


def thirds(qkv):
    """Queries, keys and values, each with the channels of all heads that are here."""
    return (one.flatten(-2) for one in qkv.unflatten(-1, (-1, 3, HEAD)).unbind(-2))


def attend(q, k, v, first):
    """Causal attention of the queries, whose first piece is number `first` in the order, over all keys."""
    def heads(x):
        return x.unflatten(-1, (-1, HEAD)).permute(1, 3, 0, 2, 4).flatten(2, 3)  # [rows, heads, tokens, HEAD]
    places = (torch.tensor(ORDER)[:, None] * PIECE_TOKENS + torch.arange(PIECE_TOKENS)).view(PIECES, -1)
    seen = places[first:first + len(q)].flatten()[:, None] >= places.flatten()
    out = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), attn_mask=seen)
    return out.unflatten(2, (len(q), PIECE_TOKENS)).permute(2, 0, 3, 1, 4).flatten(-2)


def gated(gate_up):
    gate, up = gate_up.unflatten(-1, (-1, 2, INNER)).unbind(-2)
    return (F.silu(gate) * up).flatten(-2)


def losses(logits, targets, rows):
    """These tokens' share of each row's share of the mean loss over the batch: [rows]."""
    each = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)
    return each.sum((0, 2)) / (ladder.TOKENS * rows)
