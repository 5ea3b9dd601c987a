#!/usr/bin/env bash
# qsub -v "OPTIONS=--graph ring" launch/pbs.sh                        NOT TRIED on a PBS: treat it as a start.
# A study:    qsub -J 1-8 -v "OPTIONS=sweep STUDY.toml --out DIR" launch/pbs.sh     (PBS Pro, OpenPBS; Torque: -t 1-8)
#             and once all have ended: python -m p2pkm sweep STUDY.toml --out DIR
#PBS -N p2pkm
#PBS -l select=2:ncpus=8:mpiprocs=8:mem=8gb
#PBS -l walltime=00:30:00
#PBS -j oe
set -euo pipefail
cd "${PBS_O_WORKDIR:-.}"
# PBS does not pass your environment on: activate it here.
# source "$HOME/p2pkm/.venv/bin/activate"
shares=${SHARES:-8}  # as many as the array has jobs
export MPIR_CVAR_ENABLE_HEAVY_YIELD=${MPIR_CVAR_ENABLE_HEAVY_YIELD:-1}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
export MKL_NUM_THREADS=${MKL_NUM_THREADS:-1} NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS:-1}
read -ra given <<<"${OPTIONS:-}"
set -- ${given[@]+"${given[@]}"} "$@"
python -m p2pkm compile
job=${PBS_ARRAY_INDEX:-${PBS_ARRAYID:-}}
[[ -z $job ]] || set -- "$@" --part "$job/$shares"
# The ranks that PBS has given out, host by host; ssh must work between them without a password.
exec mpirun -launcher ssh -f "$PBS_NODEFILE" -n "$(wc -l <"$PBS_NODEFILE")" python -m p2pkm "$@"
