"""Rung 3, DDP with overlap: a unit's gradients are summed while backward computes the units before it."""
import ladder


class Training(ladder.Rung):
    def prepare(self):
        self.values, self.gradients, self.summed = [], [], []
        for unit in self.units:
            self.values.append(self.zeros(unit.elements))
            ladder.initialize(unit, self.values[-1])
            ladder.open_values(unit, self.values[-1])
            self.gradients.append(self.zeros(unit.elements))
            ladder.open_gradients(unit, self.gradients[-1])
        self.optimizer = self.adamw(list(zip(self.values, self.gradients)))

    def step(self, number):
        self.backward(self.loss(number, self.rank))
        for event in self.summed:
            event.wait()
        self.summed = []
        self.optimizer.step()

    def after_gradients(self, unit):
        self.summed.append(self.world.all_reduce(self.gradients[self.units.index(unit)]))


if __name__ == "__main__":
    ladder.climb(Training)
