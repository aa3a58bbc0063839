"""Rung 11, context parallelism: each rank has 1/N of the tokens of every row, and all weights."""
import importlib

import dense
import ladder

Gather = importlib.import_module("10_tensor").Gather  # backward reduce-scatters


class Training(ladder.Rung):
    def prepare(self):
        self.model = dense.Model(self, 0, dense.SLICES)

    def step(self, number):
        model, pieces = self.model, dense.PIECES // self.ranks
        inputs, targets = dense.tokens_of(number, self.parts, self.rank * pieces, (self.rank + 1) * pieces)
        model.reset_gradients()
        x = model.embedding[inputs]
        for block in model.blocks:
            x = self.forward(block, x, self.rank * pieces)
        losses = dense.losses(dense.by_columns(ladder.norm(x, model.norm), model.head), targets, self.parts)
        losses.sum().backward()
        losses = losses.detach()
        for sums in [*(gradients for _, gradients in model.sliced + model.whole), losses]:
            self.world.all_reduce(sums).wait()
        self.losses.update({(number, part): loss.item() for part, loss in enumerate(losses)})
        model.optimizer.step()

    def forward(self, block, x, first):
        q, k, v = dense.thirds(dense.by_columns(ladder.norm(x, block["norm"]), block["qkv"]))
        k, v = Gather.apply(self.world, k), Gather.apply(self.world, v)
        x = x + dense.by_rows(dense.attend(q, k, v, first), block["out"])
        inner = dense.gated(dense.by_columns(ladder.norm(x, block["mlp_norm"]), block["gate_up"]))
        return x + dense.by_rows(inner, block["down"])


if __name__ == "__main__":
    ladder.climb(Training)
