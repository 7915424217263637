// The conversation: what was asked, the answer as it comes, then its proof; or, in its place, what went wrong.
import { announce, el, follow, hidden } from '../dom.ts';
import { chat, chatRequest, GatewayError, type Message } from '../gateway.ts';
import { createProof, type Proof } from '../proof/proof.ts';
import type { Subject } from '../proof/subject.ts';
import type { Bubbles } from '../proof/tamper.ts';
import type { Settings } from '../proof/verifier.ts';
import { type Answer, readAnswer } from '../stream.ts';
import { answerActions, createAnswer } from './answer.ts';
import { trouble } from './trouble.ts';

interface Conversation {
  /** Asks, and shows the answer with its proof. Resolves when the answer has ended, proven or not. */
  ask(text: string, model: (signal: AbortSignal) => Promise<string>, signal: AbortSignal): Promise<void>;
}

interface ConversationOptions {
  readonly settings: () => Settings;
  /** Asks the service what it is now: a sidecar that was restarted has other keys. */
  readonly refresh: () => Promise<void>;
  /** Told of every refusal, so that the rest of the page can show what is needed. */
  readonly onRefused: (error: GatewayError) => void;
  /** The visitor wants this asked again, in the place of `turn`. */
  readonly onAgain: (turn: HTMLElement, text: string) => void;
}

export function createConversation(
  turns: HTMLElement,
  { settings, refresh, onRefused, onAgain }: ConversationOptions,
): Conversation {
  const messages: Message[] = [];
  let newest: Proof | null = null;

  async function ask(
    text: string,
    model: (signal: AbortSignal) => Promise<string>,
    signal: AbortSignal,
  ): Promise<void> {
    const before = messages.length;
    const note = el('p', { class: 'note' }, 'Waiting for the first word …');
    const question = el('p', { class: 'asked' }, text);
    const answer = createAnswer(() => {
      note.textContent = 'Not proven yet: the proof comes with the end.';
      follow(note);
    });
    const article = el('article', { 'aria-busy': 'true', 'aria-label': 'Answer' }, answer.element, note);
    const turn = el('li', { class: 'turn' }, el('div', { class: 'question' }, hidden('You: '), question), article);
    const again = () => {
      messages.length = before;
      onAgain(turn, text);
    };
    newest?.fold();
    turns.append(turn);
    turn.scrollIntoView({ block: 'start' });
    const asked = [...messages, { role: 'user', content: text } as const];
    try {
      const body = chatRequest(await model(signal), asked);
      const response = await chat(body, signal);
      const received = await readAnswer(response, answer).finally(answer.end);
      performance.mark('answer');
      announce(`The answer: ${answer.text().slice(0, 2000)}`);
      note.remove();
      const proof = proofOf(received, body, { question, answer: answer.words });
      messages.push({ role: 'user', content: text }, { role: 'assistant', content: answer.text() });
      newest = proof;
      article.append(answerActions(answer, again), proof.element);
      const known = await proof.run(settings());
      follow(proof.element);
      if (known) return;
      await refresh();
      await proof.run(settings());
    } catch (error) {
      if (!(error instanceof GatewayError || error instanceof DOMException)) throw error;
      note.remove();
      article.append(trouble(error, answer.element.textContent !== '', settings().service, again));
      if (error instanceof GatewayError) onRefused(error);
    } finally {
      article.setAttribute('aria-busy', 'false');
    }
  }

  return { ask };
}

/** @throws {GatewayError} where an error came in the place of the proof, or none came. */
function proofOf({ transcript, carrier, error }: Answer, request: string, bubbles: Bubbles): Proof {
  if (error !== null) throw new GatewayError(200, error.code, error.message);
  if (carrier === null) throw new GatewayError(200, 'no_attestation', 'The answer ended without an attestation.');
  const name = `countersign-${new Date().toISOString().slice(0, 19).replace(/\W/g, '')}`;
  const subject: Subject = { kind: 'attestation', text: carrier, transcript, request, asked: true, name };
  return createProof(subject, bubbles);
}
