#!/bin/sh
# Every GPU of this node: pip install '.[cuda13]'. Without a GPU: RANKS=4, with torch's CPU wheel.
# On several nodes add torchrun's --nnodes and --rdzv-endpoint; the ranks meet through torchrun's own store.
set -eu
here=$(dirname "$0")
: "${SYNTH_SERVER:?set it to the address of the synth server, such as http://synth:8080}"
# The cluster's topology document: 'synth probe -o node.json' on each node, then 'synth topo merge'
: "${SYNTH_TOPOLOGY:?set it to the topology file of the nodes in this job}"
export SYNTH_SERVER SYNTH_TOPOLOGY
exec "${TORCHRUN:-torchrun}" --nproc-per-node "${RANKS:-gpu}" "$here/train.py" --moe
