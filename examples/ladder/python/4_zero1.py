"""Rung 4, ZeRO-1: each rank updates 1/N of the values, and keeps the moments of this part only."""
import ladder


class Training(ladder.Rung):
    def prepare(self):
        self.values, self.gradients, self.reduced = [], [], []
        for unit in self.units:
            self.values.append(self.zeros(unit.elements))
            ladder.initialize(unit, self.values[-1])
            ladder.open_values(unit, self.values[-1])
            self.gradients.append(self.zeros(unit.elements))
            ladder.open_gradients(unit, self.gradients[-1])
        self.gathered = [ladder.Events([]) for _ in self.units]
        self.optimizer = self.adamw([(self.own_part(values), self.own_part(gradients))
                                     for values, gradients in zip(self.values, self.gradients)])

    def step(self, number):
        self.backward(self.loss(number, self.rank))
        for event in self.reduced:
            event.wait()
        self.reduced = []
        self.optimizer.step()
        self.gathered = [self.world.all_gather(values) for values in self.values]

    def before_use(self, unit):
        self.gathered[self.units.index(unit)].wait()

    def after_gradients(self, unit):
        gradients = self.gradients[self.units.index(unit)]
        self.reduced.append(self.world.reduce_scatter(self.own_part(gradients), gradients))

    def own_part(self, buffer):
        """This rank's part of a unit's buffer."""
        return buffer.chunk(self.ranks)[self.rank]


if __name__ == "__main__":
    ladder.climb(Training)
