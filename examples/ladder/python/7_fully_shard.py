"""The step of rung 7 with PyTorch's fully_shard (FSDP2): docs/fsdp_in_pytorch.md compares them name by name."""
import ladder
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class UnitModule(torch.nn.Module):
    """A unit of the ladder as a module: its parameters, and the function that computes with them."""

    def __init__(self, unit):
        super().__init__()
        self.compute = unit.compute
        for parameter in unit.parameters:
            value = torch.nn.Parameter(parameter.initial().view(parameter.shape))
            self.register_parameter(ladder.key_of(parameter).replace(".", "/"), value)  # a name has no dots

    def forward(self, x):
        return self.compute({name.replace("/", "."): value for name, value in self.named_parameters()}, x)


class Counted:
    """A collective that FSDP2 calls. It counts the bytes that all ranks send."""

    def __init__(self, world, collective):
        self.world, self.collective = world, collective

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, *arguments, **named):
        self.world.count((self.world.ranks - 1) * max(output_tensor.numel(), input_tensor.numel()) * ladder.FLOAT)
        return self.collective(output_tensor, input_tensor, *arguments, **named)


class Training(ladder.Rung):
    def prepare(self):
        mesh = init_device_mesh("cpu", (self.ranks,))
        self.model = torch.nn.Sequential(*map(UnitModule, self.units))
        for module in self.model:
            fully_shard(module, mesh=mesh, reshard_after_forward=True)
            module.set_gradient_divide_factor(1.0)  # the sum over ranks, not the mean: the loss is divided already
            module.set_force_sum_reduction_for_comms(True)  # gloo has sums only
            module.set_custom_all_gather(Counted(self.world, dist.all_gather_into_tensor))
            module.set_custom_reduce_scatter(Counted(self.world, dist.reduce_scatter_tensor))
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=ladder.LEARNING_RATE, weight_decay=0.0)
        own = sum(parameter.to_local().numel() for parameter in self.model.parameters())
        self.held = 4 * own * ladder.FLOAT  # values, gradients, and two moments

    def step(self, number):
        tokens = ladder.row(number, self.rank)
        logits = self.model(tokens[:-1])
        loss = F.cross_entropy(logits, tokens[1:], reduction="sum") / (ladder.TOKENS * self.parts)
        self.losses[number, self.rank] = loss.item()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


if __name__ == "__main__":
    ladder.climb(Training)
