#!/bin/sh
# curl: a chat and its verification, a stream, the attestation by its id, and what a changed byte does.
#
#   sh examples/curl.sh                                      # OPENAI_BASE_URL and OPENAI_API_KEY say where, and as whom
#
# `"tee":{"batch":true}` in place of `"tee":true`, or the header `x-tee: batch`, lets an answer share its signature with others.
# Prints `true` for each proof, and the error that names the failed check for the one that was changed.
set -eu
base=${OPENAI_BASE_URL:-http://127.0.0.1:8080/v1}
verify=${base%/v1}/~sev_gpu@1.0/verify
model=${OPENAI_MODEL:-countersign-demo}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

ask() {
  curl -sS --fail-with-body -H "authorization: Bearer ${OPENAI_API_KEY:-any}" -H 'content-type: application/json' "$@"
}

echo 'a chat:'
ask "$base/chat/completions" -d '{"model":"'"$model"'","messages":[{"role":"user","content":"Hello"}],"max_tokens":40,"tee":true}' \
  > "$folder/answer.json"
curl -sS "$verify" --data-binary "@$folder/answer.json"
echo

echo 'a stream (its end):'
ask -N -D "$folder/headers" "$base/chat/completions" \
  -d '{"model":"'"$model"'","messages":[{"role":"user","content":"Hello"}],"max_tokens":40,"stream":true,"tee":true}' \
  > "$folder/stream.txt"
tail -n 6 "$folder/stream.txt" | cut -c 1-100

echo 'its attestation, by the id in its headers:'
id=$(sed -n 's/^x-attestation-id: *\([^[:space:]]*\).*/\1/ip' "$folder/headers")
ask "$base/chat/completions/$id/attestation" > "$folder/attestation.json"
curl -sS "$verify" --data-binary "@$folder/attestation.json"
echo

echo 'the same, with one byte of the request changed:'
sed 's/Hello/Jello/' "$folder/attestation.json" | curl -sS "$verify" --data-binary @-
echo
