// Any client: the attestation by its id, for clients that drop members they do not know.
//
// The id is the answer's header `x-attestation-id`, or the completion's own `id`. The API key is the one that asked.
//
//   const attestation = await attestationById({ baseURL: 'http://127.0.0.1:8080/v1', apiKey: '…', id: message.id });

export interface ById {
  readonly baseURL: string;
  readonly apiKey?: string;
  readonly id: string;
  /** Of a text completion rather than a chat completion. */
  readonly text?: boolean;
}

/** The attestation, parsed. Ask when the answer is complete: while it still runs the gateway says 425. @throws {Error} */
export async function attestationById({ baseURL, apiKey, id, text = false }: ById): Promise<unknown> {
  const path = `${text ? 'completions' : 'chat/completions'}/${encodeURIComponent(id)}/attestation`;
  const response = await fetch(`${baseURL}/${path}`, {
    headers: apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
  });
  if (!response.ok) throw new Error(`no attestation for ${id}: ${response.status} ${await response.text()}`);
  return response.json();
}
