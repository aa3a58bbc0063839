"""Rung 1: the whole batch on one rank, part by part.

The gradients of the parts are kept separate, and added in the order of the tree over ranks.
"""
import ladder


class Training(ladder.Rung):
    def prepare(self):
        self.values, self.gradients = [], []
        for unit in self.units:
            self.values.append(self.zeros(unit.elements))
            ladder.initialize(unit, self.values[-1])
            ladder.open_values(unit, self.values[-1])
            self.gradients.append([self.zeros(unit.elements) for _ in range(self.parts)])
        self.optimizer = self.adamw([(values, parts[0]) for values, parts in zip(self.values, self.gradients)])

    def step(self, number):
        for part in range(self.parts):
            for unit, gradients in zip(self.units, self.gradients):
                ladder.open_gradients(unit, gradients[part])
            self.backward(self.loss(number, part))
        for parts in self.gradients:
            parts[0].copy_(ladder.tree_sum(parts))
        self.optimizer.step()


if __name__ == "__main__":
    ladder.climb(Training, one_rank=True)
