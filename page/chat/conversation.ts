// The conversation: what was asked, the answer as it comes, then its proof; or, in its place, what went wrong.
import { announce, el, hidden } from '../base/dom.ts';
import { chat, chatRequest, GatewayError, type Message } from '../base/gateway.ts';
import { type Answer, readAnswer } from '../base/stream.ts';
import { wholeOf } from '../proof/bundles.ts';
import { createProof, type Proof } from '../proof/proof.ts';
import type { Subject } from '../proof/subject.ts';
import type { Bubbles } from '../proof/tamper.ts';
import type { Settings } from '../proof/verifier.ts';
import { answerActions, createAnswer } from './answer.ts';
import { createProgress, watchSidecar } from './progress.ts';
import { trouble } from './trouble.ts';

interface Conversation {
  /** Asks, and shows the answer with its proof. Resolves when the answer has ended, proven or not. */
  ask(text: string, model: (signal: AbortSignal) => Promise<string>, signal: AbortSignal): Promise<void>;
  /** Forgets every question and answer. */
  clear(): void;
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
    const progress = createProgress();
    const question = el('p', { class: 'asked' }, text);
    const answer = createAnswer(progress.words);
    const article = el('article', { 'aria-busy': 'true', 'aria-label': 'Answer' }, answer.element, progress.element);
    const turn = el('li', { class: 'turn' }, el('div', { class: 'question' }, hidden('You: '), question), article);
    const again = () => {
      messages.length = before;
      onAgain(turn, text);
    };
    newest?.fold();
    turns.append(turn);
    // The question and the start of its answer stay in view: nothing scrolls on its own after this.
    turn.scrollIntoView({ block: 'start' });
    const watch = watchSidecar(progress, refresh, () => settings().service);
    const either = AbortSignal.any([signal, watch.signal]);
    const asked = [...messages, { role: 'user', content: text } as const];
    try {
      const body = chatRequest(await model(either), asked);
      const response = await chat(body, either);
      const listener = { ...answer, signing: progress.signing };
      const received = await readAnswer(response, listener).finally(answer.end);
      watch.stop();
      performance.mark('answer');
      announce(`The answer: ${answer.text().slice(0, 2000)}`);
      progress.end();
      const proof = await proofOf(received, body, { question, answer: answer.words });
      messages.push({ role: 'user', content: text }, { role: 'assistant', content: answer.text() });
      newest = proof;
      article.append(el('div', { class: 'answer-end' }, proof.element, answerActions(answer, again)));
      if (await proof.run(settings())) return;
      await refresh();
      await proof.run(settings());
    } catch (cause) {
      const error = watch.ended ?? cause;
      if (!(error instanceof GatewayError || error instanceof DOMException)) throw error;
      progress.end();
      article.append(trouble(error, answer.element.textContent !== '', settings().service, again));
      if (error instanceof GatewayError) onRefused(error);
    } finally {
      watch.stop();
      article.setAttribute('aria-busy', 'false');
    }
  }

  return {
    ask,
    clear() {
      messages.length = 0;
      newest = null;
      turns.replaceChildren();
    },
  };
}

/** @throws {GatewayError} where an error came in the place of the proof, or none came. */
async function proofOf({ transcript, carrier, error }: Answer, request: string, bubbles: Bubbles): Promise<Proof> {
  if (error !== null) throw new GatewayError(0, error.code, error.message);
  if (carrier === null) throw new GatewayError(0, 'no_attestation', 'The answer ended without an attestation.');
  const name = `countersign-${new Date().toISOString().slice(0, 19).replace(/\W/g, '')}`;
  const subject: Subject = { kind: 'attestation', text: carrier, transcript, request, asked: true, name };
  return createProof(await wholeOf(subject), bubbles, { open: false });
}
