#!/usr/bin/env bash
# One run:    launch/pbs.sh --graph ring                              NOT TRIED on a PBS: treat it as a start.
#             Options of qsub come first, then --:  launch/pbs.sh -l walltime=02:00:00 -- --graph ring
# A study:    launch/pbs.sh -J 1-8 -- study STUDY.toml --out DIR      (PBS Pro, OpenPBS; Torque: -t 1-8)
#             and once all have ended: python -m p2pkm study STUDY.toml --out DIR
# Outside of a job the script submits itself. The options of p2pkm are written into the job, quoted for the shell:
# as variables (qsub -v) they would be cut at commas.
#PBS -N p2pkm
#PBS -S /bin/bash
#PBS -l select=2:ncpus=8:mpiprocs=8:mem=8gb
#PBS -l walltime=00:30:00
#PBS -j oe
#PBS -r n
set -euo pipefail
if [[ -n ${OPTIONS:-} ]]; then
  echo "pbs.sh: OPTIONS is '$OPTIONS', and qsub -v cuts it at commas. Submit with: launch/pbs.sh $OPTIONS" >&2
  exit 2
fi

submit() {
  local given=("$@") qsub=(qsub) range='' part='' i
  for ((i = 0; i < $#; i++)); do
    case ${given[i]} in
      -J | -t) range=${given[i + 1]:-} ;;
      -J* | -t*) range=${given[i]#-?} ;;
      --)
        qsub+=("${given[@]:0:i}")
        shift $((i + 1))
        break
        ;;
    esac
  done
  # Each task of an array runs its share of the study: the tasks count as 1, 2, ... in order, whatever their numbers.
  if ((${#qsub[@]} > 1)) && [[ -n $range ]]; then
    if [[ -n ${SHARES:-} ]]; then
      range=1-$SHARES
    fi
    if [[ ! $range =~ ^([0-9]+)-([0-9]+)(:([0-9]+))?(%[0-9]+)?$ ]]; then
      echo "pbs.sh: the array is '$range'; expected FIRST-LAST or FIRST-LAST:STEP. To run these shares of, say, 8 again:" \
        "SHARES=8 launch/pbs.sh ..." >&2
      exit 2
    fi
    local first=${BASH_REMATCH[1]} last=${BASH_REMATCH[2]} step=${BASH_REMATCH[4]:-1}
    part=" --part \$(((\${PBS_ARRAY_INDEX:-\$PBS_ARRAYID} - $first) / $step + 1))/$(((last - first) / step + 1))"
    qsub+=(-r y)  # PBS takes arrays only if they may be started again; a study keeps what it has
  fi
  {
    grep '^#PBS' "$0"
    printf 'exec bash'
    printf ' %q' "$(realpath "$0")" "$@"
    echo "$part"
  } | "${qsub[@]}"
}

if [[ -z ${PBS_JOBID:-} ]]; then
  submit "$@"
  exit
fi
cd "${PBS_O_WORKDIR:-.}"
# PBS does not pass your environment on: activate it here.
# source "$HOME/p2pkm/.venv/bin/activate"
export MPIR_CVAR_ENABLE_HEAVY_YIELD=${MPIR_CVAR_ENABLE_HEAVY_YIELD:-1}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
export MKL_NUM_THREADS=${MKL_NUM_THREADS:-1} NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS:-1}
# Compile the kernels once, on one core, before all ranks need them; tasks of an array wait for the first of them.
python -m p2pkm compile
# The ranks that PBS has given out, host by host; ssh must work between them without a password.
exec mpirun -launcher ssh -f "$PBS_NODEFILE" -n "$(wc -l <"$PBS_NODEFILE")" python -m p2pkm "$@"
