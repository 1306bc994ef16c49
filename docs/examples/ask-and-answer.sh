#!/usr/bin/env bash
# An agent asks, a person's key answers, the agent goes on: the whole story over HTTP.
# Start Sayso with `make run`, then: docs/examples/ask-and-answer.sh [path of demo.json]
set -euo pipefail
demo="${1:-var/demo.json}"
here="$(cd "$(dirname "$0")" && pwd)"

json() { python3 -c 'import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1:]:
    value = value[int(key)] if isinstance(value, list) else value[key]
print(value if isinstance(value, str) else json.dumps(value))' "$@"; }
call() { curl --silent --show-error --fail-with-body --header "Authorization: Bearer $1" --header 'Content-Type: application/json' "${@:2}"; }

base="$(json base_url <"$demo")/api"
key="$(json api_key <"$demo")"
approver="$(json approver_api_key <"$demo")"

# 1. Start the run. MODEL_PROVIDER and MODEL choose the model; without them the demo's reviewer plays.
request="$(sed -e "s|MODEL_PROVIDER|${MODEL_PROVIDER:-demo}|; s|MODEL_NAME|${MODEL:-deployment-reviewer}|" "$here/deployment-review.json")"
run="$(call "$key" --data "$request" "$base/runs" | json run_id)"
echo "run $run"

# 2. Follow its events until it ends: with a question, or with its output.
call "$key" --no-buffer --max-time 120 "$base/runs/$run/events/sse" | grep '^event:' | sort | uniq -c

# 3. The question waits in the inbox of the person that the second key answers for.
for _ in $(seq 50); do
  tasks="$(call "$approver" "$base/tasks?state=open&run_id=$run")"
  [ "$(json items <<<"$tasks")" != "[]" ] && break
  sleep 0.1
done
task="$(json items 0 id <<<"$tasks")"
digest="$(json items 0 digest <<<"$tasks")"
echo "asks: $(json items 0 question <<<"$tasks")"

# 4. Answer exactly what was read: the digest says so.
answer="$(call "$approver" --data "{\"action\": \"approve\", \"values\": {\"comment\": \"Approved for the planned window.\"}, \"digest\": \"$digest\"}" "$base/tasks/$task/submit")"
next="$(json next_run_id <<<"$answer")"
echo "answered: $(json state <<<"$answer")"

# 5. The answer started the next run; its last event carries what the agent made of it.
call "$key" --no-buffer --max-time 120 "$base/runs/$next/events/sse" | sed -n 's/^data: //p' | tail -n 1 | json data output
