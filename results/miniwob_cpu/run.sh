#!/bin/sh
# The reproduction on a CPU: hours on two cores. Every step continues what it finds, so it can be stopped and called again.
#   sh results/miniwob_cpu/run.sh [seed …]
set -e
cd "$(dirname "$0")/../.."
PY=.venv/bin/python
WARM=runs/miniwob-cpu/sft
START="init.agent=$WARM/agent init.attacker=$WARM/attacker"
# Demonstrations and warm start once, with seed 0; the runs differ in everything behind.
[ -d $WARM/attacker ] || $PY scripts/sft.py experiment=miniwob_cpu
for seed in ${@:-0 1}; do
  run=miniwob-cpu-$seed
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=$run $START
  $PY scripts/crossplay.py runs/$run eval.split=train eval.episodes=27 eval.seeds=[$seed] --out runs/$run/crossplay-train
  $PY scripts/crossplay.py runs/$run eval.seeds=[$seed]
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=$run-no_pbl population=latest $START
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=$run-no_al game.attack=false algo.seats=[agent] $START
  for other in no_pbl no_al; do
    $PY scripts/crossplay.py runs/$run-$other eval.split=train eval.episodes=27 eval.seeds=[$seed] game.attack=true \
      eval.agents=[rl-10] eval.attackers=[none,runs/$run:sft,runs/$run:rl-10] --out runs/$run-$other/crossplay-train
  done
done
