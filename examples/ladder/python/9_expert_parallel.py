"""Rung 9, expert parallelism: each rank holds 1/N of the experts, whole, and tokens travel to them."""
import torch
import torch.nn.functional as F

import ladder


class Move(torch.autograd.Function):
    """Sends part r of the rows to rank r. In backward the gradients travel the other way."""
    @staticmethod
    def forward(context, world, sent_rows, received_rows, rows):
        context.journey = world, received_rows, sent_rows
        received = [rows.new_empty(count, rows.shape[1]) for count in received_rows]
        world.all_to_all(received, rows.split(sent_rows))
        return torch.cat(received)

    @staticmethod
    def backward(context, gradient):
        return None, None, None, Move.forward(type(context)(), *context.journey, gradient)


class Training(ladder.Rung):
    def prepare(self):
        self.gradients, self.expert_gradients, self.summed, shards = [], [], [], []
        for unit in self.units:
            if isinstance(unit.compute, ladder.Block):
                unit.compute.experts = self.experts
            self.gradients.append([])
            self.expert_gradients.append([])
            for parameter in unit.parameters:
                parts = self.ranks if parameter.stacked else 1
                count, shape = parameter.count // parts, (parameter.shape[0] // parts, *parameter.shape[1:])
                first = self.rank * count if parameter.stacked else 0
                values = self.zeros(count).copy_(parameter.initial(first, first + count))
                gradients = [self.zeros(count) for _ in range(parts)]  # one for each source of rows
                key = ladder.key_of(parameter)
                windows = [one.view(shape) for one in gradients]
                if parameter.stacked:
                    unit.values[key], unit.gradients[key] = [values.view(shape)] * parts, windows
                    self.expert_gradients[-1].append(gradients)
                else:
                    unit.values[key], unit.gradients[key] = values.view(shape), windows[0]
                    self.gradients[-1].append(gradients[0])
                shards.append((values, gradients[0]))
        self.optimizer = self.adamw(shards)

    def step(self, number):
        self.backward(self.loss(number, self.rank))
        for event in self.summed:
            event.wait()
        self.summed = []
        self.optimizer.step()

    def experts(self, v, x, rows, weights):
        """The experts' results for their rows, weighed. A row travels with its weight."""
        here = ladder.EXPERTS // self.ranks  # experts of a rank
        offsets = F.pad(torch.tensor([len(one) for one in rows]).cumsum(0), (1, 0)).int()
        theirs = [torch.empty(here + 1, dtype=torch.int32) for _ in range(self.ranks)]
        self.world.all_to_all(theirs, list(offsets.unfold(0, here + 1, here)))
        counts = [one.diff().tolist() for one in theirs]
        sent, received = offsets[::here].diff().tolist(), [sum(one) for one in counts]
        weighed = torch.hstack([x[torch.cat(rows)], torch.cat(weights)[:, None]])
        arrived = Move.apply(self.world, sent, received, weighed)
        results = []
        for source, part in enumerate(arrived.split(received)):
            for e, one in enumerate(part.split(counts[source])):
                y = ladder.expert(one[:, :-1], v["gate_up_proj"][source][e], v["down_proj"][source][e])
                results.append(one[:, -1:] * y)
        back = Move.apply(self.world, received, sent, torch.cat(results))
        return back.split([len(one) for one in rows])

    def after_gradients(self, unit):
        index = self.units.index(unit)
        for sources in self.expert_gradients[index]:
            sources[0].copy_(ladder.tree_sum(sources))
        self.summed += [self.world.all_reduce(one) for one in self.gradients[index]]


if __name__ == "__main__":
    ladder.climb(Training)
