# Parts of a run on a machine with GPUs, for on_gpu.sh and on_gpus.sh, which source this file: their arguments
# BUILD OUT [PART...], and the functions that run a part. The comment at a script's head is its usage.
#
# shellcheck shell=bash disable=SC2034 # the scripts read the variables

if (($# < 2)); then
  sed -n '2,/^# shellcheck/{/^# shellcheck/!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
bin=$1/bin
mkdir -p "$2" || exit 1
out=$(cd "$2" && pwd)
shift 2
parts=("$@")
python=${PYTHON:-python3}
failed=0

say() {
  echo "$*" | tee -a "$out/summary.txt"
}

wanted() {
  ((${#parts[@]} == 0)) || [[ " ${parts[*]} " == *" $1 "* ]]
}

# log_gpu FILE: adds a sample of the first GPU to the file every 100 ms, in the background. The first three
# fields are those of tools/bench/gpu_samples.h.
log_gpu() {
  command -v nvidia-smi >/dev/null || return
  local gpu=${CUDA_VISIBLE_DEVICES:-0}
  stdbuf -oL nvidia-smi --id="${gpu%%,*}" --format=csv,noheader,nounits --loop-ms=100 \
    --query-gpu=clocks.sm,power.draw,clocks_event_reasons.active,clocks.mem,temperature.gpu >"$1" 2>&1 &
  logger=$!
}

# part NAME MINUTES FUNCTION: runs the function in a new shell, up to the time limit. The function
# prints the reason and returns 77 if a tool is missing.
part() {
  wanted "$1" || return
  if grep -q "^$1  *[0-9]* s  ok" "$out/summary.txt"; then return; fi
  local begin=$SECONDS logger="" status verdict
  log_gpu "$out/$1.gpu.csv"
  timeout --kill-after=10 "$(($2 * 60))" bash -c "$3" >"$out/$1.log" 2>&1
  status=$?
  if [[ -n $logger ]]; then kill "$logger" && wait "$logger" 2>/dev/null; fi
  case $status in
    0) verdict="ok" ;;
    77) verdict="skipped: $(tail -n 1 "$out/$1.log")" ;;
    124 | 137) verdict="ran out of its $2 minutes" failed=1 ;;
    *) verdict="FAILED with $status: $(tail -n 1 "$out/$1.log" | cut -c1-100)" failed=1 ;;
  esac
  say "$(printf '%-14s %5d s  %s' "$1" $((SECONDS - begin)) "$verdict")"
}

need() {
  if ! command -v "$1" >/dev/null; then
    echo "${2:-$1} is not there"
    exit 77
  fi
}

need_torch() {
  if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "no PyTorch that finds a GPU"
    exit 77
  fi
}

# each PATTERN COMMAND...: runs COMMAND PROGRAM '~[cpu]~[.]' for the test programs with matching names, some
# at a time, then prints their output. It names the programs that failed, and fails if there is one. (With
# any filter, Catch also runs hidden tests unless ~[.] leaves them out.)
each() {
  local pattern=$1 logs
  shift
  logs=$(mktemp -d)
  # shellcheck disable=SC2016 # the inner shell expands them
  find "$bin" -name 'test_*' -type f -executable | grep -E "$pattern" | sort |
    xargs -P "$((($(nproc) + 1) / 2))" -I{} bash -c 'name=$(basename "$2")
      "${@:3}" "$2" "~[cpu]~[.]" --use-colour no >"$1/$name.log" 2>&1 || echo "$name" >>"$1/failed"' \
      each "$logs" {} "$@"
  tail -n 100 "$logs"/*.log
  [[ ! -e $logs/failed ]] || { echo "failed: $(sort "$logs/failed" | xargs)"; return 1; }
}

# begin: the machine's first line of the summary.
begin() {
  touch "$out/summary.txt"
  if command -v nvidia-smi >/dev/null; then
    say "$(nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem,power.limit --format=csv,noheader)"
  else
    say "nvidia-smi is not there: no clocks and no power"
  fi
}

export -f need need_torch each
