// LangChain (@langchain/openai): reads the attestation from a message, or from any chunk or concatenation of chunks that has it.
//
//   const model = new ChatOpenAI({
//     model,
//     configuration: { baseURL: 'http://127.0.0.1:8080/v1' },
//     modelKwargs: { tee: true },
//     __includeRawResponse: true,   // without it LangChain drops what it does not know
//   });
//   attestationOf(await model.invoke('Hello'));

/** @param message an AIMessage, or an AIMessageChunk */
export function attestationOf(message: { additional_kwargs: Record<string, unknown> }): unknown {
  const raw = message.additional_kwargs.__raw_response;
  return typeof raw === 'object' && raw !== null && 'attestation' in raw ? raw.attestation : undefined;
}
