#!/usr/bin/env bash
# Behind `make up`, `make down`, `make logs` and `make status`: calls `docker compose`, and puts into a
# sentence what it would not say. It knows nothing that compose.yaml does not say.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf 'make: %s\n' "$*" >&2; }
give_up() { say "$@"; exit 1; }

require_docker() {
    command -v docker > /dev/null ||
        give_up 'there is no docker here. Install Docker, or run the cluster without it: make run.'
    local why
    why=$(docker info --format '{{.ServerVersion}}' 2>&1 > /dev/null) ||
        give_up "no Docker engine answers. Start it, or run the cluster without it: make run. (${why##*$'\n'})"
    docker compose version > /dev/null 2>&1 ||
        give_up 'docker has no compose plugin. Install Compose v2 (docker-compose-plugin), or run the cluster without it: make run.'
}

# The first "reason" of a line of JSON, as a person would write it.
reason_in() { grep -oE '"reason": "([^"\\]|\\.)*"' | head -n 1 | sed -E 's/^"reason": "(.*)"$/\1/; s/\\(.)/\1/g'; }

# What a node that is not ready says about it: its last words if it has ended, else its health check's.
why_not() {
    local name=$1 state health last
    read -r state health < <(docker inspect --format '{{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{end}}' "$name")
    case $state/$health in running/ | running/healthy) return ;; esac
    last=$(docker logs --tail 50 "$name" 2>&1 | grep '"event": "node_ended"' | tail -n 1 | reason_in) || true
    if [ -z "$last" ] && [ "$state" = running ]; then
        last=$(docker inspect --format '{{range .State.Health.Log}}{{println .Output}}{{end}}' "$name" | grep . | tail -n 1 | reason_in) || true
    fi
    printf '  %-20s %s: %s\n' "$name" "$state" "${last:-it says nothing}" >&2
}

up() {
    # Who names an image has it.
    [ -n "${NODE_IMAGE:-}" ] || docker compose build --quiet
    local said
    # What it prints while it works goes to the terminal; its errors are needed again.
    if ! said=$(docker compose up --detach --wait --wait-timeout "${WAIT_S:-60}" 2>&1); then
        grep -v -E '^ *(Container|Network|Volume) ' <<< "$said" | tail -n 5 >&2 || true
        case $said in
            *'port is already allocated'* | *'address already in use'*)
                give_up 'a port is taken. Stop what listens there, or choose others: NODE1_PORT=… make up (compose/README.md lists them).' ;;
        esac
        say 'these are not ready:'
        for name in $(docker compose ps --all --format '{{.Name}}'); do why_not "$name"; done
        exit 1
    fi
    printf 'Ottla is ready: bootstrap.servers=%s\n' "$(docker compose port node1 9092 | sed 's/^127\.0\.0\.1/localhost/')"
    printf '  in containers of the network %s: bootstrap.servers=node1:19092\n' "$(docker compose ps --format '{{.Networks}}' node1)"
    printf '  look inside    http://%s/\n' "$(docker compose port node1 9100)"
    printf '  Prometheus     http://%s/\n' "$(docker compose port prometheus 9090)"
    printf 'make status, make logs, make down\n'
}

down() {
    if [ -n "${VOLUMES:-}" ]; then docker compose --profile '*' down --volumes; else docker compose --profile '*' down; fi
}

status() {
    docker compose --profile '*' ps --all --format 'table {{.Name}}\t{{.Status}}\t{{.Ports}}'
    local name
    name=$(docker compose ps --status running --format '{{.Name}}' | grep -E 'node[0-9]+' | head -n 1) ||
        give_up 'no node runs. make up starts them.'
    docker exec "$name" ottla health --bootstrap-server localhost:19092
}

require_docker
case ${1:-} in
    up) up ;;
    down) down ;;
    logs) docker compose --profile '*' logs --follow --tail 100 ;;
    status) status ;;
    *) give_up 'compose/run.sh up, down, logs or status' ;;
esac
