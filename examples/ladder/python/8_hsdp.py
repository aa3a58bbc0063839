"""Rung 8, HSDP: replicas of FSDP. Gathers stay inside a replica; the sums cross between replicas once.

The hooks and the slots are those of rung 7.
"""
import importlib

import ladder

fsdp = importlib.import_module("7_fsdp")


class Training(fsdp.Training):
    def prepare(self):
        group = max(1, self.ranks // 2)  # ranks of a replica
        whole = self.world
        self.replicas = whole.split(self.rank % group)
        self.world = whole.split(self.rank // group)  # the ranks of this replica: rung 7 gathers from them
        self.ranks, self.rank, self.part = group, self.world.rank, whole.rank
        super().prepare()

    def loss(self, number, part):
        return super().loss(number, self.part)

    def after_gradients(self, unit):
        index = self.units.index(unit)
        sums = [gradients for _, gradients in self.parameters[index]]
        for own, window in zip(sums, unit.gradients.values()):
            self.world.reduce_scatter(own, window).wait()
        self.sent[index % 2] = ladder.Events([self.replicas.all_reduce(own) for own in sums])


if __name__ == "__main__":
    ladder.climb(Training)
