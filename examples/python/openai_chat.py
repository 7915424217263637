"""openai (PyPI): a chat, whole and streamed, each with its attestation.

    pip install openai==3.54.0
    export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any
    python examples/python/openai_chat.py

Prints each answer and the nonce that the GPU signed. verify.py beside this checks what json.dump(attestation, file) keeps.
"""

import os

from openai import OpenAI

client = OpenAI()  # OPENAI_BASE_URL, OPENAI_API_KEY
question = {
    "model": os.environ.get("OPENAI_MODEL", "countersign-demo"),
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 40,
    "extra_body": {"tee": True},  # {"tee": {"batch": True}}: the answer may share its signature with others
}

answer = client.chat.completions.create(**question)
print("whole:", answer.choices[0].message.content)
print("  nonce:", answer.attestation["nonce"])  # AttributeError: there is none

print("stream: ", end="")
attestation = None
for chunk in client.chat.completions.create(**question, stream=True):
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    attestation = attestation or getattr(chunk, "attestation", None)  # on the chunk that has finish_reason
print("\n  nonce:", attestation["nonce"])
