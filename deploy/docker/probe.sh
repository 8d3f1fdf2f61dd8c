#!/bin/sh
# Read this node's topology and report it, once, or every SYNTH_PROBE_SECONDS.
set -eu
node=${SYNTH_NODE:-$(uname -n)}
folder=${SYNTH_RUN:-/run/synth}
bin=${SYNTH_BIN:-/opt/synth/bin}

once() {
    "$bin/synth" probe --node "$node" -o "$folder/topology.json" &&
        "$bin/python" -m synth.client.report "$folder/topology.json"
}

if [ -z "${SYNTH_PROBE_SECONDS:-}" ]; then
    once
    exit
fi
trap 'exit 0' TERM INT
while :; do
    once || echo "synth-report: failed; next try in $SYNTH_PROBE_SECONDS s" >&2
    sleep "$SYNTH_PROBE_SECONDS" &
    wait $!
done
