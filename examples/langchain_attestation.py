"""LangChain (langchain-openai): a ChatOpenAI that keeps the attestation, as `response_metadata["attestation"]`.

    model = AttestedChatOpenAI(
        model="…", base_url="http://127.0.0.1:8080/v1", api_key="…", extra_body={"tee": True}
    )
    model.invoke("Hello").response_metadata["attestation"]

In a stream it is on the last chunk of the answer and on the sum of all chunks.
"""

from langchain_openai import ChatOpenAI


class AttestedChatOpenAI(ChatOpenAI):
    """ChatOpenAI itself drops every member of an answer that it does not know."""

    def _create_chat_result(self, response, generation_info=None):
        result = super()._create_chat_result(response, generation_info)
        body = response if isinstance(response, dict) else response.model_extra or {}
        for generation in result.generations:
            _keep(generation, body)
        return result

    def _convert_chunk_to_generation_chunk(self, chunk, default_chunk_class, base_generation_info):
        generation = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        if generation is not None:
            _keep(generation, chunk)
        return generation


def _keep(generation, body):
    if body.get("attestation") is not None:
        generation.message.response_metadata["attestation"] = body["attestation"]
