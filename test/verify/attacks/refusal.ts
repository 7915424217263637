// How a verifying fetch refuses: by a response of its own, or by an error of the stream.
import { UnprovenAnswerError } from '../../../verify/clients/fetch.ts';

/** The code of the response that stands for a refusal; null: it is none. @throws {Error} where clients would ask again. */
export async function refusalIn(response: Response): Promise<string | null> {
  if (response.status !== 400) return null;
  const { error } = (await response.clone().json()) as { error: { type: string; code: string } };
  if (error.type !== 'unproven_answer') return null;
  if (response.headers.get('x-should-retry') !== 'false') throw new Error('clients would ask again');
  return error.code;
}

/** What was handed over, and the code of the refusal, or whatever else it ended with; null: a clean end. */
export async function readProven(given: Promise<Response>): Promise<{ text: string; refused: unknown }> {
  let text = '';
  try {
    const response = await given;
    const refused = await refusalIn(response);
    if (refused !== null) return { text, refused };
    for await (const chunk of (response.body ?? []) as unknown as AsyncIterable<Uint8Array>)
      text += Buffer.from(chunk).toString();
    return { text, refused: null };
  } catch (error) {
    return { text, refused: error instanceof UnprovenAnswerError ? error.code : error };
  }
}
