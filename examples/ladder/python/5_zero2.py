"""Rung 5, ZeRO-2: each rank keeps the sums of 1/N of the gradients. Two slots hold whole gradients for a short time."""
import ladder


class Training(ladder.Rung):
    def prepare(self):
        self.values, self.gradients = [], []
        for unit in self.units:
            self.values.append(self.zeros(unit.elements))
            ladder.initialize(unit, self.values[-1])
            ladder.open_values(unit, self.values[-1])
            self.gradients.append(self.zeros(unit.elements // self.ranks))
        self.slots = [self.zeros(ladder.most_elements(self.units)) for _ in range(2)]
        self.sent = [ladder.Events([]), ladder.Events([])]  # by slot: it is free
        self.gathered = [ladder.Events([]) for _ in self.units]
        self.optimizer = self.adamw([(self.own_part(values), sums)
                                     for values, sums in zip(self.values, self.gradients)])

    def step(self, number):
        self.backward(self.loss(number, self.rank))
        for event in self.sent:
            event.wait()
        self.optimizer.step()
        self.gathered = [self.world.all_gather(values) for values in self.values]

    def before_use(self, unit):
        self.gathered[self.units.index(unit)].wait()

    def before_gradients(self, unit):
        slot = self.units.index(unit) % 2
        self.sent[slot].wait()
        ladder.open_gradients(unit, self.slots[slot])

    def after_gradients(self, unit):
        index = self.units.index(unit)
        whole = self.slots[index % 2][:unit.elements]
        self.sent[index % 2] = self.world.reduce_scatter(self.gradients[index], whole)

    def own_part(self, buffer):
        """This rank's part of a unit's buffer."""
        return buffer.chunk(self.ranks)[self.rank]


if __name__ == "__main__":
    ladder.climb(Training)
