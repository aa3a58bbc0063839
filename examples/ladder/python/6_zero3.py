"""Rung 6, ZeRO-3: each parameter has one owner, and travels to the other ranks before each use."""
import ladder


class Training(ladder.Rung):
    def prepare(self):
        self.parameters, shards = [], []
        for unit in self.units:
            self.parameters.append([])
            for parameter in unit.parameters:
                owner = sum(map(len, self.parameters)) % self.ranks
                values = gradients = None
                if owner == self.rank:
                    values, gradients = self.zeros(parameter.count), self.zeros(parameter.count)
                    values.copy_(parameter.initial())
                    shards.append((values, gradients))
                self.parameters[-1].append((owner, values, gradients))
        self.slot = self.zeros(ladder.most_elements(self.units))  # the values of the unit that computes
        self.slots = [self.zeros(ladder.most_elements(self.units)) for _ in range(2)]  # gradients
        self.sent = [ladder.Events([]), ladder.Events([])]
        self.optimizer = self.adamw(shards)

    def step(self, number):
        self.backward(self.loss(number, self.rank))
        for event in self.sent:
            event.wait()
        self.optimizer.step()

    def before_use(self, unit):
        self.gather(unit).wait()
        ladder.open_values(unit, self.slot)

    def after_use(self, unit):
        ladder.close_values(unit)

    def gather(self, unit):
        """Brings the unit's values to the slot. The event: all of them are there."""
        windows, events = ladder.windows_of(unit, self.slot).values(), []
        for window, (owner, values, _) in zip(windows, self.parameters[self.units.index(unit)]):
            if owner == self.rank:
                window.view(-1).copy_(values)
            events.append(self.world.broadcast(window, owner))
        return ladder.Events(events)

    def before_gradients(self, unit):
        slot = self.units.index(unit) % 2
        self.sent[slot].wait()
        ladder.open_gradients(unit, self.slots[slot])

    def after_gradients(self, unit):
        owned, windows = self.parameters[self.units.index(unit)], list(unit.gradients.values())
        events = [self.world.reduce(window, owner) for window, (owner, _, _) in zip(windows, owned)]

        def keep_sums():
            for window, (owner, _, sums) in zip(windows, owned):
                if owner == self.rank:
                    sums.copy_(window.view(-1))
        self.sent[self.units.index(unit) % 2] = ladder.Events(events, keep_sums)


if __name__ == "__main__":
    ladder.climb(Training)
