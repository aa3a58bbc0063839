"""Rung 12, pipeline parallelism: each rank has a few neighbouring units, a stage."""
import torch
import torch.nn.functional as F

import ladder


class Training(ladder.Rung):
    def prepare(self):
        blocks = len(self.units) - 2
        self.is_first, self.is_last = self.rank == 0, self.rank + 1 == self.ranks
        begin = 0 if self.is_first else 1 + self.rank * blocks // self.ranks
        end = len(self.units) if self.is_last else 1 + (self.rank + 1) * blocks // self.ranks
        self.stage, self.values, self.gradients = self.units[begin:end], [], []
        for unit in self.stage:
            self.values.append(self.zeros(unit.elements))
            ladder.initialize(unit, self.values[-1])
            ladder.open_values(unit, self.values[-1])
            self.gradients.append([self.zeros(unit.elements) for _ in range(self.parts)])
        self.optimizer = self.adamw([(values, parts[0]) for values, parts in zip(self.values, self.gradients)])

    def step(self, number):
        """The schedule gpipe: all forward passes, then all backward passes."""
        passes = [self.forward(number, part) for part in range(self.parts)]
        for part, (given, leaves, result) in enumerate(passes):
            result.backward(None if self.is_last else self.receive(self.rank + 1))
            if not self.is_first:
                self.send(self.rank - 1, given.grad)
            for unit, weights, parts in zip(self.stage, leaves, self.gradients):
                for key, window in ladder.windows_of(unit, parts[part]).items():
                    window.copy_(weights[key].grad)
        for parts in self.gradients:
            parts[0].copy_(ladder.tree_sum(parts))
        self.optimizer.step()

    def forward(self, number, part):
        """The stage's input, its weights as leaves of the graph, and its result: for backward."""
        tokens = ladder.row(number, part)
        given = tokens[:-1] if self.is_first else self.receive(self.rank - 1).requires_grad_()
        leaves = [{key: ladder.leaf_of(value) for key, value in unit.values.items()} for unit in self.stage]
        x = given
        for unit, weights in zip(self.stage, leaves):
            x = unit.compute(weights, x)
        if self.is_last:
            x = F.cross_entropy(x, tokens[1:], reduction="sum") / (ladder.TOKENS * self.parts)
            self.losses[number, part] = x.item()
        else:
            self.send(self.rank + 1, x.detach())
        return given, leaves, x

    def send(self, rank, message):
        nothing = [message.new_empty(0)] * self.ranks
        self.world.all_to_all(nothing, [message if r == rank else nothing[r] for r in range(self.ranks)])

    def receive(self, rank):
        nothing = [torch.empty(0)] * self.ranks
        received = [torch.empty(ladder.TOKENS, ladder.WIDTH) if r == rank else nothing[r] for r in range(self.ranks)]
        self.world.all_to_all(received, nothing)
        return received[rank]


if __name__ == "__main__":
    ladder.climb(Training)
