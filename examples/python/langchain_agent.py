"""LangChain (PyPI): an agent with a tool. Every answer of the model has its own attestation.

    pip install langchain==1.4.7 langchain-openai==1.7.3
    export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any OPENAI_MODEL=…     # a model that can call tools
    python examples/python/langchain_agent.py

Prints the conversation, then the same question streamed, with the nonce that the GPU signed beside each of the model's
answers. The model's class is in examples/langchain_attestation.py.
"""

import os
import sys
from pathlib import Path

from langchain.agents import create_agent

sys.path.append(str(Path(__file__).parents[1]))
from langchain_attestation import AttestedChatOpenAI  # noqa: E402


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


model = AttestedChatOpenAI(model=os.environ.get("OPENAI_MODEL", "countersign-demo"), extra_body={"tee": True})
agent = create_agent(model, tools=[get_weather])
question = {"messages": [{"role": "user", "content": "How is the weather in Paris?"}]}
limits = {"recursion_limit": 8}

for message in agent.invoke(question, limits)["messages"]:
    print(f"{message.type}: {message.text or message.tool_calls}")
    if message.type == "ai":
        print("  nonce:", message.response_metadata["attestation"]["nonce"])  # KeyError: there is none

for chunk, _ in agent.stream(question, limits, stream_mode="messages"):
    if chunk.type != "AIMessageChunk":
        continue
    print(chunk.text, end="", flush=True)
    if "attestation" in chunk.response_metadata:
        print("\n  nonce:", chunk.response_metadata["attestation"]["nonce"])
