"""Rung 2, DDP: each rank computes one part, and the ranks sum their gradients after backward."""
import ladder


class Training(ladder.Rung):
    def prepare(self):
        self.values, self.gradients = [], []
        for unit in self.units:
            self.values.append(self.zeros(unit.elements))
            ladder.initialize(unit, self.values[-1])
            ladder.open_values(unit, self.values[-1])
            self.gradients.append(self.zeros(unit.elements))
            ladder.open_gradients(unit, self.gradients[-1])
        self.optimizer = self.adamw(list(zip(self.values, self.gradients)))

    def step(self, number):
        self.backward(self.loss(number, self.rank))
        for gradients in self.gradients:
            self.world.all_reduce(gradients).wait()
        self.optimizer.step()


if __name__ == "__main__":
    ladder.climb(Training)
