// The page: its two views, and what the service says of itself.

import { byId } from './base/dom.ts';
import type { GatewayError, Service } from './base/gateway.ts';
import { createComposer } from './chat/composer.ts';
import { createConversation } from './chat/conversation.ts';
import { createSealing } from './chat/sealing.ts';
import { createCheck } from './check/check.ts';
import { createLive, type Status } from './live.ts';
import { OWN_VERIFIER } from './proof/keep.ts';
import { isLink } from './proof/link.ts';

const collateral = (checkbox: string) => byId<HTMLInputElement>(checkbox).checked;

const live = createLive(showStatus);
const conversation = createConversation(byId('turns'), {
  settings: () => live.settings(collateral('collateral')),
  refresh: live.refresh,
  onRefused,
  onAgain(turn, text) {
    turn.remove();
    composer.submit(text);
  },
});
const composer = createComposer(
  (text, signal) => conversation.ask(text, composer.modelFor, signal),
  () => void live.refresh(),
);

byId('new-chat').addEventListener('click', () => {
  conversation.clear();
  composer.reset();
  scrollTo(0, 0);
});

const sealing = createSealing(() => live.settings(collateral('collateral')));

function onRefused({ status }: GatewayError): void {
  if (status === 401 && live.service?.key_required !== false)
    composer.askForKey('The service does not know this key any more.');
  void live.refresh();
}

function showStatus({ kind, text }: Status, service: Service | null): void {
  const state = byId('state');
  // Said once, not with every question.
  if (state.textContent !== text) state.textContent = text;
  state.dataset.kind = kind;
  sealing.serviceIs(service);
  composer.serviceIs(service);
  if (service === null) return;
  // A sidecar that is away says nothing of its GPU.
  if (service.sidecar.status === 'connected') byId('simulated').hidden = service.simulated_root === null;
  byId('version').textContent = `Countersign ${service.version}`;
}

byId('own-verifier').textContent = `${OWN_VERIFIER} FILE`;

function showView(): void {
  const check = location.hash === '#check' || isLink(location.hash);
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
showView();
await live.refresh();
createCheck(
  () => live.settings(collateral('drop-collateral')),
  live.refresh,
  () => {
    location.hash = '#check';
  },
);
document.documentElement.dataset.ready = 'yes';
performance.mark('ready');
