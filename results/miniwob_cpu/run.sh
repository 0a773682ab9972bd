#!/bin/sh
# The reproduction on a CPU, resumable: every call continues what it finds. Hours on two cores.
#   sh results/miniwob_cpu/run.sh [seed …]
set -e
cd "$(dirname "$0")/../.."
PY=.venv/bin/python
START="init.agent=runs/miniwob-cpu/sft/agent init.attacker=runs/miniwob-cpu/sft/attacker"
# Demonstrations and warm start once, with seed 0; the runs differ in everything behind.
[ -d runs/miniwob-cpu/sft/attacker ] || $PY scripts/sft.py experiment=miniwob_cpu
for seed in ${@:-0 1}; do
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=miniwob-cpu-$seed $START
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=miniwob-cpu-$seed-no_pbl population=latest $START
  $PY scripts/train.py experiment=miniwob_cpu seed=$seed name=miniwob-cpu-$seed-no_al game.attack=false algo.seats=[agent] $START
done
