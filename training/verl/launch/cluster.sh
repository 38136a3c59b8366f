#!/usr/bin/env bash
# Run on every node: HEAD=10.0.0.1 NODES=2 bash cluster.sh. The first waits for the others and trains.
set -euo pipefail
: "${HEAD:?the address of the first node}" "${NODES:?how many nodes there are}"
HERE=$(cd "$(dirname "$0")" && pwd)
# Each node's processes read these; all nodes need the same settings file or variables.
export VERL_USE_EXTERNAL_MODULES=rubricem.training.verl.plugin
export RAY_USAGE_STATS_ENABLED=0
# Whoever reaches Ray's ports can run code on every node, so that all calls carry one token.
export RAY_AUTH_MODE=token
if ! ray get-auth-token >/dev/null 2>&1; then
    if [ "$NODES" -gt 1 ]; then
        echo "error: there is no token of Ray on this node (Ray 2.52 or newer is needed)." >&2
        echo "Run 'ray get-auth-token --generate' on one node, and copy ~/.ray/auth_token to all." >&2
        exit 1
    fi
    ray get-auth-token --generate >/dev/null
fi

if hostname -I | tr ' ' '\n' | grep -qx "$HEAD"; then
    ray start --head --node-ip-address "$HEAD" --port 6379
    until [ "$(ray list nodes --filter state=ALIVE --format json | grep -c node_id)" -ge "$NODES" ]; do
        sleep 5
    done
    status=0
    NODES="$NODES" bash "$HERE/train.sh" "$@" || status=$?
    ray stop
    exit "$status"
fi
until ray start --address "$HEAD:6379"; do sleep 5; done
# A worker ends with its head.
while ray status --address "$HEAD:6379" >/dev/null 2>&1; do sleep 30; done
ray stop
