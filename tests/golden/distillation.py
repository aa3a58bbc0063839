"""Writes tests/golden/distillation/: PyTorch's losses against a teacher's most likely tokens, and their gradients.

The loss of a row is (1 - w) cross_entropy(next token) + w cross_entropy(teacher's renormalized top k), each by
torch.nn.functional.cross_entropy in float64: the first with classes as targets, the second with probabilities. The
teacher's log-probabilities are rounded to float16 first, as a teacher file has them. Row 2 has no next token, row 4
no teacher, and the next token of rows 0 and 5 is among the teacher's.

Usage: python tests/golden/distillation.py                                   (README.md says what to install)
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

ROWS, WIDTH, CLASSES, K = 7, 8, 23, 4
IGNORED, NO_TEACHER = 2, 4


def main():
    generator = torch.Generator().manual_seed(71)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    x, weight = normal(ROWS, WIDTH), normal(CLASSES, WIDTH)
    values, ids = (2 * normal(ROWS, CLASSES)).log_softmax(-1).topk(K)
    values = values.to(torch.float16)
    next_tokens = torch.randint(CLASSES, (ROWS,), generator=generator)
    next_tokens[0], next_tokens[5] = ids[0, 0], ids[5, 2]
    next_tokens[IGNORED] = -100
    values[NO_TEACHER] = -torch.inf
    results = {"x": x, "weight": weight, "next_tokens": next_tokens.to(torch.int32), "ids": ids.to(torch.int32),
               "log_probabilities": values}
    for share in (0.0, 0.3, 1.0):
        inputs = [tensor.to(torch.float64).requires_grad_() for tensor in (x, weight)]
        logits = inputs[0] @ inputs[1].T
        losses = []
        for row in range(ROWS):
            if row == IGNORED:
                continue
            loss = cross_entropy(logits[row], next_tokens[row])
            if row != NO_TEACHER:
                teacher = torch.zeros(CLASSES, dtype=torch.float64)
                teacher[ids[row]] = values[row].to(torch.float64).softmax(-1)
                loss = (1 - share) * loss + share * cross_entropy(logits[row], teacher)
            losses.append(loss)
        total = torch.stack(losses).sum()
        total.backward()
        results[f"{share}.loss"] = total.detach().reshape(1)
        results[f"{share}.grad.x"], results[f"{share}.grad.weight"] = (tensor.grad for tensor in inputs)
        print(share, total.item())
    folder = pathlib.Path(__file__).parent / "distillation"
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in results.items()}, folder / "expected.safetensors",
              metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main()
