#!/usr/bin/env bash
# Run p2pkm on this machine with several MPI ranks, with the python and the mpirun of the active environment:
#     launch/local.sh 16 --graph ring            or            RANKS=16 launch/local.sh --graph ring
set -euo pipefail
ranks=${RANKS:-4}
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
  ranks=$1
  shift
fi
# MPICH: a waiting rank sleeps, so more ranks than cores do no harm. What you have set yourself stays.
export MPIR_CVAR_ENABLE_HEAVY_YIELD=${MPIR_CVAR_ENABLE_HEAVY_YIELD:-1}
# One thread per library: the ranks are the parallelism.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
export MKL_NUM_THREADS=${MKL_NUM_THREADS:-1} NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS:-1}
# Open MPI 5 and 4 (others ignore these): allow more ranks than cores, and root.
export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
if [[ $EUID -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
exec mpirun -n "$ranks" python -m p2pkm "$@"
