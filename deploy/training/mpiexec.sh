#!/bin/sh
# Eight ranks on this machine without a GPU: pip install '.[mpi]'
# The plan comes from SYNTH_PLAN_FILE, or from SYNTH_SERVER; with neither, MPI's own collectives are used.
set -eu
here=$(dirname "$0")
export SYNTH_TOPOLOGY="${SYNTH_TOPOLOGY:-asym8}"
exec "${MPIEXEC:-mpiexec}" -n "${RANKS:-8}" "${PYTHON:-python}" "$here/train.py"
