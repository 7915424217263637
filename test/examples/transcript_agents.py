"""Runs an agent that keeps a transcript: `python transcript_agents.py langgraph|openai-agents RUN ROOT [compact]`, with OPENAI_BASE_URL."""

import asyncio
import os
import sys

from countersign_verify import TranscriptFile, verifying_async_client, verifying_client

AGENT, RUN, ROOT, *REST = sys.argv[1:]
COMPACT = bool(REST)
SUMMARY = "Until now: it is 18 degrees everywhere."
MAX_ITEMS = 12


def given():
    with open(ROOT, encoding="ascii") as root:
        return {"transcript": TranscriptFile(RUN), "simulated_root": root.read()}


def told(name, city):
    return f"It is noon in {city}." if name == "get_time" else f"18 degrees in {city}"


def langgraph():
    from langchain.agents import create_agent
    from langchain.agents.middleware import before_model
    from langchain.messages import HumanMessage, RemoveMessage
    from langchain.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    @tool
    def get_weather(city: str, days: list[float] | None = None) -> str:
        """The weather of a city."""
        return told("get_weather", city)

    @tool
    def get_time(city: str) -> str:
        """The time of a city."""
        return told("get_time", city)

    @before_model
    def compacted(state, _runtime):
        messages = state["messages"]
        if not COMPACT or len(messages) < MAX_ITEMS:
            return None
        kept = [HumanMessage(SUMMARY), *messages[-2:]]
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept]}

    model = ChatOpenAI(model="m", http_client=verifying_client(**given()), max_retries=0)
    agent = create_agent(model, tools=[get_weather, get_time], system_prompt="You know the weather.", middleware=[compacted])
    agent.invoke({"messages": [{"role": "user", "content": "Which city is the warmest?"}]}, {"recursion_limit": 60})


async def openai_agents():
    from agents import (
        Agent,
        ModelSettings,
        OpenAIResponsesModel,
        RunConfig,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from agents.run import CallModelData, ModelInputData
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    @function_tool
    def get_weather(city: str, days: list[float] | None = None) -> str:
        return told("get_weather", city)

    @function_tool
    def get_time(city: str) -> str:
        return told("get_time", city)

    def compacted(data: CallModelData) -> ModelInputData:
        items = data.model_data.input
        if not COMPACT or len(items) < MAX_ITEMS + 5:
            return data.model_data
        return ModelInputData([{"role": "user", "content": SUMMARY}, *items[-2:]], data.model_data.instructions)

    async with verifying_async_client(**given()) as http_client:
        client = AsyncOpenAI(http_client=http_client, max_retries=0)
        agent = Agent(
            name="weather",
            instructions="You know the weather.",
            model=OpenAIResponsesModel("m", client),
            model_settings=ModelSettings(),
            tools=[get_weather, get_time],
        )
        config = RunConfig(call_model_input_filter=compacted)
        await Runner.run(agent, "Which city is the warmest?", max_turns=12, run_config=config)


os.environ.setdefault("OPENAI_API_KEY", "any")
if AGENT == "langgraph":
    langgraph()
else:
    asyncio.run(openai_agents())
