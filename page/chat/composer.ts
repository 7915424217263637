// What a message is written in: the box, the model, and the key where the service asks for one.
import { announce, byId, el } from '../base/dom.ts';
import { GatewayError, getModels, hasKey, type Model, type Service, useKey } from '../base/gateway.ts';

interface Composer {
  /** Shows what the service needs now. */
  serviceIs(service: Service | null): void;
  /** The key was refused, or is missing. */
  askForKey(reason?: string): void;
  /** The model to ask. A backend that was away at first is asked for its models again. @throws {DOMException} when it was aborted. */
  modelFor(signal: AbortSignal): Promise<string>;
  /** Sends this text, unless an answer is under way. */
  submit(text: string): void;
  /** Stops the answer that is under way, and empties the box for a new conversation. */
  reset(): void;
}

/** @param run sends a text; it is over when the answer has ended. @param onKey runs when a key was entered that the service takes. */
export function createComposer(run: (text: string, signal: AbortSignal) => Promise<void>, onKey: () => void): Composer {
  const form = byId<HTMLFormElement>('composer');
  const keyForm = byId<HTMLFormElement>('key-form');
  const message = byId<HTMLTextAreaElement>('message');
  const key = byId<HTMLInputElement>('key');
  const problem = byId('key-problem');
  const { loadModels, hasModels, modelFor } = createModels();
  const { submit, isRunning, abort } = createSending(run);
  let service: Service | null = null;
  let refused = false;

  function showForms(): void {
    const needed = (service?.key_required ?? false) && (!hasKey() || refused);
    keyForm.hidden = !needed;
    form.hidden = needed;
    byId('change-key').hidden = !hasKey();
  }
  function askForKey(reason = ''): void {
    refused = reason !== '';
    problem.textContent = reason;
    problem.hidden = reason === '';
    showForms();
    if (!keyForm.hidden) key.focus();
  }
  async function takeKey(): Promise<void> {
    if (key.value.trim() === '') return askForKey('Enter the key first.');
    useKey(key.value);
    try {
      await loadModels();
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      if (error.status === 401) {
        useKey('');
        return askForKey('The service does not know this key.');
      }
    }
    refused = false;
    showForms();
    announce('The key is taken.');
    message.focus();
    onKey();
  }
  function fromBox(): void {
    const text = message.value.trim();
    if (text === '' || isRunning()) return;
    message.value = '';
    void submit(text);
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    fromBox();
  });
  message.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    fromBox();
  });
  byId('stop').addEventListener('click', () => {
    abort();
    message.focus();
  });
  keyForm.addEventListener('submit', (event) => {
    event.preventDefault();
    void takeKey();
  });
  byId('change-key').addEventListener('click', () => {
    useKey('');
    askForKey();
  });

  return {
    serviceIs(now) {
      service = now;
      showForms();
      if (now === null || hasModels() || (now.key_required && !hasKey())) return;
      loadModels().catch((error) => {
        if (!(error instanceof GatewayError)) throw error;
        if (error.status === 401) askForKey(error.message);
      });
    },
    askForKey,
    modelFor,
    submit: (text) => void submit(text),
    reset() {
      abort();
      message.value = '';
      message.focus();
    },
  };
}

/** The service's models, and the one that is chosen. */
function createModels() {
  const model = byId<HTMLSelectElement>('model');
  let models: readonly Model[] = [];
  async function loadModels(init: RequestInit = {}): Promise<void> {
    models = await getModels(init);
    model.replaceChildren(...models.map(({ id }) => el('option', { value: id }, id)));
    noteModel();
  }
  function noteModel(): void {
    byId('model-note').textContent = models.find(({ id }) => id === model.value)?.description ?? '';
  }
  async function modelFor(signal: AbortSignal): Promise<string> {
    if (models.length === 0) await loadModels({ signal });
    return model.value;
  }
  model.addEventListener('change', noteModel);
  return { loadModels, hasModels: () => models.length > 0, modelFor };
}

/** Sends one text at a time. */
function createSending(run: (text: string, signal: AbortSignal) => Promise<void>) {
  const send = byId<HTMLButtonElement>('send');
  const stop = byId<HTMLButtonElement>('stop');
  let running: AbortController | null = null;
  async function submit(text: string): Promise<void> {
    if (text === '' || running !== null) return;
    running = new AbortController();
    send.hidden = true;
    stop.hidden = false;
    announce('Sent.');
    try {
      await run(text, running.signal);
    } finally {
      running = null;
      send.hidden = false;
      stop.hidden = true;
    }
  }
  return { submit, isRunning: () => running !== null, abort: () => running?.abort() };
}
