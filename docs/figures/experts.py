#!/usr/bin/env python3
"""Draws how rows of tokens travel to the ranks of their experts: an example of two ranks and four experts.

The choices of the router are an example. The places of the rows follow from them, as in
autograd/experts.h: rows are sorted by expert, and a rank receives its experts' rows by rank.
"""
from drawing import Drawing

CHOICES = [[(0, 2), (1, 3), (2, 0)], [(3, 1), (3, 2), (0, 3)]]  # by rank and token: the experts it takes
EXPERTS = 4
RANKS = len(CHOICES)
FILLS = ["white", "blue", "grey", "dark"]
CELL, HEIGHT = 44, 28


def main():
    drawing = Drawing()
    each = EXPERTS // RANKS
    sent = [sorted((expert, token) for token, experts in enumerate(tokens) for expert in experts)
            for tokens in CHOICES]
    left, rows_at, received_at = 10, 96, 222
    for rank, tokens in enumerate(CHOICES):
        x = left + 350 * rank
        drawing.text(x, 18, f"rank {rank}", 15, bold=True)
        if rank == 0:
            drawing.text(x, 84, "a row for each token and expert, sorted by expert", 12)
            drawing.text(x, received_at + 46, "rows of its own experts, from all ranks", 12)
        drawing.text(x, 40, "tokens " + ", ".join("abcdef"[3 * rank + t] for t in range(len(tokens))) +
                     f";  experts {rank * each} and {rank * each + 1}", 13)
        for place, (expert, token) in enumerate(sent[rank]):
            drawing.cell(x + CELL * place, rows_at, CELL, HEIGHT, f"{'abcdef'[3 * rank + token]}: {expert}", FILLS[expert])
    arrived = {owner: [(source, place, expert, token) for source in range(RANKS)
                       for place, (expert, token) in enumerate(sent[source]) if expert // each == owner]
               for owner in range(RANKS)}
    for owner, rows in arrived.items():
        for at, (source, place, expert, token) in enumerate(rows):
            x = left + 350 * owner + CELL * at
            drawing.cell(x, received_at, CELL, HEIGHT, f"{'abcdef'[3 * source + token]}: {expert}", FILLS[expert])
            drawing.arrow(left + 350 * source + CELL * (place + 0.5), rows_at + HEIGHT + 2, x + CELL / 2, received_at - 3,
                          "#d07000" if source != owner else "#888888", 1.6 if source != owner else 1.0)
    drawing.text(left, received_at + 70, '"a: 2" is the row of token a for expert 2. Thick arrows cross between ranks; '
                 "results return the same way.", 12)
    print(drawing.svg(received_at + 84))


if __name__ == "__main__":
    main()
