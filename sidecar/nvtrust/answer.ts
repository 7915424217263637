// What a worker's answer must be before the attester gives it on: about this nonce, saying true, about every device, and new.
import { createHash } from 'node:crypto';
import type { Nonce } from '../../proto/raw.ts';
import { CheckFailure } from '../../verify/checks.ts';
import { type ParsedToken, parseToken } from '../../verify/token/index.ts';
import type { Collected } from '../attester.ts';
import { failure } from './failure.ts';
import type { Answer } from './frames.ts';

/** How many of the last tokens are remembered, by digest. */
const REMEMBERED = 1024;

/** `device_count`: GPUs and switches when the worker came up. Report signatures are the sidecar's to check: `checked.ts`. */
export type AnswerCheck = (answer: Answer, nonce: Nonce, device_count: number) => Collected;

export function createAnswerCheck(): AnswerCheck {
  const given = new Set<string>();
  return ({ nonce: answered, token, evidence }, nonce, device_count) => {
    if (answered !== nonce) throw failure('wrong_nonce', 'the worker answered for another nonce');
    const digest = createHash('sha256').update(token).digest('base64');
    if (given.has(digest)) throw failure('previous_token', 'the worker returned a token that was given before');
    const parsed = read(token);
    // NVIDIA's SDK keeps its last token: after a failure it is that one which it returns, about another nonce.
    if (parsed.nonces.length === 0 || parsed.nonces.some((one) => one !== nonce))
      throw failure('previous_token', 'the token is about another nonce');
    if (parsed.overallResult !== true)
      throw failure('token_refused', "the token does not say that NVIDIA's verifier agreed");
    if (evidence.length !== device_count)
      throw failure('wrong_device_count', `evidence of ${evidence.length} devices where there are ${device_count}`);
    if (parsed.devices.length !== device_count)
      throw failure('wrong_device_count', `the token speaks of ${parsed.devices.length} devices of ${device_count}`);
    given.add(digest);
    for (const oldest of given) {
      if (given.size <= REMEMBERED) break;
      given.delete(oldest);
    }
    return { token, evidence };
  };
}

function read(token: string): ParsedToken {
  try {
    return parseToken(token);
  } catch (cause) {
    if (!(cause instanceof CheckFailure)) throw cause;
    throw failure('token_refused', `the token cannot be read: ${cause.message}`, { cause });
  }
}
