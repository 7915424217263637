// The page: its two views, the composer, and what the service says of itself.
import { createConversation } from './chat/conversation.ts';
import { announce, byId, el } from './dom.ts';
import { GatewayError, getModels, getService, type Model, type Service, useKey } from './gateway.ts';
import { cannotVerify, type Settings } from './proof/verifier.ts';
import { createStored } from './stored.ts';

const message = byId<HTMLTextAreaElement>('message');
const model = byId<HTMLSelectElement>('model');
const key = byId<HTMLInputElement>('key');
const send = byId<HTMLButtonElement>('send');
const stop = byId<HTMLButtonElement>('stop');
let service: Service | null = null;
let models: readonly Model[] = [];
let running: AbortController | null = null;

const settings = (checkbox: string) => (): Settings => ({
  service,
  collateral: byId<HTMLInputElement>(checkbox).checked,
});
const conversation = createConversation(byId('turns'), {
  settings: settings('collateral'),
  refresh,
  onRefused,
  onAgain,
});

function onRefused({ status }: GatewayError): void {
  if (status === 401 && service?.key_required !== false) askForKey();
  void refresh();
}

function askForKey(): void {
  byId('key-field').hidden = byId('key-note').hidden = false;
  byId<HTMLDetailsElement>('settings').open = true;
  key.focus();
}

/** What the service says of itself now, and its models where there are none yet. @throws {DOMException} when it was aborted. */
async function refresh(init: RequestInit = {}): Promise<void> {
  try {
    service = await getService(init);
    showService(service);
    if (models.length === 0 && (!service.key_required || key.value !== '')) await showModels(init);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    if (error.status === 401) askForKey();
    showState('away', error.message);
  }
}

function showService({ sidecar, simulated_root, version, key_required }: Service): void {
  byId('simulated').hidden = simulated_root === null;
  document.documentElement.classList.toggle('is-simulated', simulated_root !== null);
  byId('key-field').hidden = byId('key-note').hidden = !key_required;
  byId('version').textContent = `Countersign ${version}`;
  const device = sidecar.devices[0]?.model ?? 'GPU';
  const several = sidecar.devices.length > 1 ? `${sidecar.devices.length} × ` : '';
  const reason = cannotVerify();
  if (reason !== null) showState('trouble', `${reason}.`);
  else if (sidecar.trouble !== null) showState('trouble', `The GPU cannot attest: ${sidecar.trouble.message}`);
  else if (sidecar.status !== 'connected') showState('trouble', 'The GPU is away: no proofs now');
  else showState('ready', `${several}${device}, attester ${sidecar.attester}`);
}

function showState(kind: 'ready' | 'trouble' | 'away', text: string): void {
  const state = byId('state');
  state.dataset.kind = kind;
  state.textContent = text;
}

async function showModels(init: RequestInit): Promise<void> {
  models = await getModels(init);
  model.replaceChildren(...models.map(({ id }) => el('option', { value: id }, id)));
  noteModel();
}

function noteModel(): void {
  byId('model-note').textContent = models.find(({ id }) => id === model.value)?.description ?? '';
}

function onAgain(turn: HTMLElement, text: string): void {
  if (running !== null) return;
  turn.remove();
  void submit(text);
  message.focus();
}

/** A backend that was away at first has its models now, or is still waited for. */
async function modelFor(signal: AbortSignal): Promise<string> {
  if (models.length === 0) await refresh({ signal });
  return model.value;
}

async function submit(text: string): Promise<void> {
  if (text === '' || running !== null) return;
  running = new AbortController();
  send.hidden = true;
  stop.hidden = false;
  announce('Sent.');
  try {
    await conversation.ask(text, modelFor, running.signal);
  } finally {
    running = null;
    send.hidden = false;
    stop.hidden = true;
  }
}

function fromComposer(): void {
  const text = message.value.trim();
  if (text === '' || running !== null) return;
  message.value = '';
  void submit(text);
}

byId('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  fromComposer();
});
message.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  fromComposer();
});
stop.addEventListener('click', () => {
  running?.abort();
  message.focus();
});
model.addEventListener('change', noteModel);
key.addEventListener('change', () => {
  useKey(key.value);
  models = [];
  void refresh();
});

function showView(): void {
  const check = location.hash === '#check';
  byId('chat').hidden = check;
  byId('check').hidden = !check;
  byId('to-chat').setAttribute('aria-current', String(!check));
  byId('to-check').setAttribute('aria-current', String(check));
}
// Followed as a link, it would be the address of another view.
byId('to-content').addEventListener('click', (event) => {
  event.preventDefault();
  byId('view').focus();
});
addEventListener('hashchange', () => {
  showView();
  scrollTo(0, 0);
});
createStored(settings('drop-collateral'), () => {
  location.hash = '#check';
});
showView();
await refresh();
document.documentElement.dataset.ready = 'yes';
performance.mark('ready');
