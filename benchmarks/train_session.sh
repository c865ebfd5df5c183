#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `paoding train` takes and how good it gets, for the four models, in one call on one machine.
# Usage: benchmarks/train_session.sh BUNDLE DATA OUT [g2p] [step] [fashion] [lm] [translate] [translate-gpu]
#   g2p            twelve epochs on the CPU, scored greedily and with a beam of 5
#   step           a step of `train` beside the same step of `bench`, 2 and 16 threads
#   fashion, lm    as they are by default, on the CPU
#   translate      300 steps on the CPU;  translate-gpu: TRANSLATE_EPOCHS (4) epochs on the GPU, BLEU greedy and beam 5
# What stands with & runs beside the others, each with THREADS of its own.
#   BUNDLE  folder made by tools/bundle.sh;  DATA  folder filled by tools/fetch_data.sh;  OUT  logs, JSON lines, curves
set -u
paoding=$1/paoding
data=$2
out=$3
shift 3
parts=${*:-g2p step fashion lm translate}
work=$(mktemp -d)
mkdir -p "$out"
has() { [[ " $parts " == *" $1 "* ]]; }
note() { printf '\n== %s (%s)\n' "$1" "$(date -u +%H:%M:%S)"; }

# train NAME THREADS MODEL OPTIONS...: JSON lines, curve and scores into OUT.
train() {
  local name=$1 threads=$2 model=$3
  shift 3
  OMP_NUM_THREADS=$threads "$paoding" train "$model" --data "$data" --out "$work/$name" --json "$@" \
    >"$out/$name.jsonl" 2>"$out/$name.err"
  cp "$work/$name/curve.svg" "$out/$name.svg" 2>/dev/null
  grep -h '"event":"scores"' "$out/$name.jsonl" | tail -n 2 | sed "s/^/$name: /" | cut -c1-200
  grep -h '"event":"end"' "$out/$name.jsonl" | sed "s/,\"shapes.*//; s/^/$name: /"
  cat "$out/$name.err" | head -n 3
}
evaluate() {  # evaluate NAME THREADS MODEL OPTIONS...
  local name=$1 threads=$2 model=$3
  shift 3
  echo "$name $*: $(OMP_NUM_THREADS=$threads "$paoding" evaluate "$model" "$work/$name" --data "$data" --json "$@" 2>&1)"
}
shape() {  # shape NAME: the most frequent one's source, target steps and median
  python3 - "$out/$1.jsonl" <<'P'
import json, re, sys
end = [json.loads(line) for line in open(sys.argv[1]) if '"end"' in line][-1]
most = max(end["shapes"], key=lambda s: s["steps"])
s, t = re.search(r"source i64\[(\d+),", most["inputs"]).group(1), re.search(r"written i64\[(\d+),", most["inputs"]).group(1)
print(s, t, most["steps"], most["median_ms"], end["step_seconds"], end["loop_seconds"])
P
}

{
  lscpu | grep -E '^Model name|^CPU\(s\)'
  "$paoding" --version
  if has step; then
    for threads in 2 16; do
      note "a step of g2p, $threads threads"
      train "g2p_step_$threads" "$threads" g2p --steps $((threads * 60 + 300)) --validate 10 --no-test
      read -r s t steps median run loop < <(shape "g2p_step_$threads")
      echo "train: source $s, target $t: $steps steps, median $median ms; steps $run s of $loop s of the loop"
      OMP_NUM_THREADS=$threads "$paoding" bench g2p --device cpu --quick --lengths --dropout 0.1 --source "$s" --target "$t"
    done
  fi
  if has g2p; then
    note "g2p, twelve epochs"
    train g2p "${THREADS:-16}" g2p --epochs 12
    for beam in 1 5; do evaluate g2p "${THREADS:-16}" g2p --beam $beam; done
  fi
  if has fashion; then
    note fashion
    train fashion "${THREADS:-16}" fashion
  fi
  if has lm; then
    note lm
    train lm "${THREADS:-16}" lm ${LM_OPTIONS:-}
  fi
  if has translate; then
    note "translate, 300 steps on the CPU"
    train translate "${THREADS:-16}" translate --steps 300 --validate 200 --no-test
  fi
  if has translate-gpu; then
    note "translate on the GPU"
    train translate_gpu 2 translate --device cuda --epochs "${TRANSLATE_EPOCHS:-4}" --validate 200 --no-test
    for beam in 1 5; do evaluate translate_gpu 2 translate --device cuda --beam $beam; done
    OMP_NUM_THREADS=2 "$paoding" evaluate translate "$work/translate_gpu" --data "$data" --device cuda --beam 5 --limit 10 \
      --show 6
  fi
  rm -rf "$work"
} 2>&1 | tee "$out/session.txt"
