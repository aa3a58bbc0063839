"""Rung 7, FSDP: each rank owns 1/N of the rows of every parameter. The next unit is gathered while one computes."""
import ladder


class Training(ladder.Rung):
    def prepare(self):
        self.parameters, shards = [], []
        for unit in self.units:
            self.parameters.append([])
            for parameter in unit.parameters:
                count = parameter.count // self.ranks
                values, gradients = self.zeros(count), self.zeros(count)
                values.copy_(parameter.initial(self.rank * count, (self.rank + 1) * count))
                self.parameters[-1].append((values, gradients))
            shards += self.parameters[-1]
        most = ladder.most_elements(self.units)
        self.slots = [self.zeros(most) for _ in range(3)]
        self.holds, self.ready = [None] * 3, [None] * 3  # by slot: its unit, and the event of its values
        self.gradient_slots = [self.zeros(most) for _ in range(2)]
        self.sent = [ladder.Events([]), ladder.Events([])]
        self.optimizer = self.adamw(shards)

    def step(self, number):
        self.backward(self.loss(number, self.rank))
        for event in self.sent:
            event.wait()
        self.optimizer.step()
        self.holds = [None] * 3

    def before_use(self, unit):
        self.gather(unit)
        self.ready[self.slot_of(unit)].wait()
        ladder.open_values(unit, self.slots[self.slot_of(unit)])
        if self.next(unit):
            self.gather(self.next(unit))

    def after_use(self, unit):
        ladder.close_values(unit)

    def gather(self, unit):
        slot = self.slot_of(unit)
        if self.holds[slot] is unit:
            return
        self.holds[slot] = unit
        windows = list(ladder.windows_of(unit, self.slots[slot]).values())
        for window, (values, _) in zip(windows, self.parameters[self.units.index(unit)]):
            window.view(-1).chunk(self.ranks)[self.rank].copy_(values)
        self.ready[slot] = ladder.Events([self.world.all_gather(window) for window in windows])

    def slot_of(self, unit):
        """The blocks take turns with two slots; the embedding and the head share a third."""
        index = self.units.index(unit)
        return 2 if index in (0, len(self.units) - 1) else index % 2

    def before_gradients(self, unit):
        slot = self.units.index(unit) % 2
        self.sent[slot].wait()
        ladder.open_gradients(unit, self.gradient_slots[slot])

    def after_gradients(self, unit):
        index = self.units.index(unit)
        sums = [gradients for _, gradients in self.parameters[index]]
        self.sent[index % 2] = ladder.Events([self.world.reduce_scatter(own, window)
                                              for own, window in zip(sums, unit.gradients.values())])


if __name__ == "__main__":
    ladder.climb(Training)
