"""Rung 10, tensor parallelism: each rank has 1/N of a layer's channels, and of the tokens between layers."""
import torch

import dense
import ladder


def gathered(world, own):
    whole = own.new_empty(world.ranks, *own.shape)
    whole[world.rank] = own
    world.all_gather(whole).wait()
    return whole.flatten(0, 1)


def scattered(world, whole):
    own = whole.new_empty(len(whole) // world.ranks, *whole.shape[1:])
    world.reduce_scatter(own, whole.clone(memory_format=torch.contiguous_format)).wait()
    return own


class Gather(torch.autograd.Function):
    """From this rank's tokens to all tokens, before a layer."""
    @staticmethod
    def forward(context, world, x):
        context.world = world
        return gathered(world, x)

    @staticmethod
    def backward(context, gradient):
        return None, scattered(context.world, gradient)


class Scatter(torch.autograd.Function):
    """From a summand for all tokens to the sum for this rank's, behind a layer."""
    @staticmethod
    def forward(context, world, x):
        context.world = world
        return scattered(world, x)

    @staticmethod
    def backward(context, gradient):
        return None, gathered(context.world, gradient)


class Training(ladder.Rung):
    def prepare(self):
        slices = dense.SLICES // self.ranks
        self.model = dense.Model(self, self.rank * slices, (self.rank + 1) * slices)

    def step(self, number):
        model, pieces = self.model, dense.PIECES // self.ranks
        inputs, targets = dense.tokens_of(number, self.parts, self.rank * pieces, (self.rank + 1) * pieces)
        model.reset_gradients()
        x = model.embedding[inputs]
        for block in model.blocks:
            x = self.forward(block, x)
        losses = dense.losses(dense.by_columns(ladder.norm(x, model.norm), model.head), targets, self.parts)
        losses.sum().backward()
        losses = losses.detach()
        for sums in [*(gradients for _, gradients in model.whole), losses]:
            self.world.all_reduce(sums).wait()
        self.losses.update({(number, part): loss.item() for part, loss in enumerate(losses)})
        model.optimizer.step()

    def forward(self, block, x):
        qkv = dense.by_columns(self.gather(ladder.norm(x, block["norm"])), block["qkv"])
        x = x + self.scatter(dense.by_rows(dense.attend(*dense.thirds(qkv), 0), block["out"]))
        h = self.gather(ladder.norm(x, block["mlp_norm"]))
        inner = dense.gated(dense.by_columns(h, block["gate_up"]))
        return x + self.scatter(dense.by_rows(inner, block["down"]))

    def gather(self, x):
        return Gather.apply(self.world, x)

    def scatter(self, x):
        return Scatter.apply(self.world, x)


if __name__ == "__main__":
    ladder.climb(Training)
