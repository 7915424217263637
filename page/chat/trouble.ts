// What went wrong, in words that say what to do; never in place of a proof, always in sight.
import { announce, el } from '../base/dom.ts';
import { GatewayError, type Service } from '../base/gateway.ts';

const ADVICE: Readonly<Record<string, string>> = {
  invalid_api_key: 'Enter an API key under "Model and settings", then try again.',
  attestation_unavailable:
    'Without a signature no answer can be proven. Try again in a few seconds. If it stays away, tell the operator.',
  gateway_unreachable: 'Start it again, or look at your connection, then try again.',
  backend_unreachable: 'The gateway runs, but the model behind it does not answer.',
  backend_timeout: 'The model was silent for too long.',
  overloaded: 'The service is at its capacity.',
  rate_limit_exceeded: 'Too many requests at once.',
};

/** Where the gateway itself wants no key. */
const BACKEND_KEY = 'The model behind the gateway refused the gateway: its operator must set BACKEND_API_KEY.';

/**
 * @param error a GatewayError; a DOMException where the visitor stopped it.
 * @param begun whether words of the answer are already on the page: they are unproven then.
 */
export function trouble(
  error: GatewayError | DOMException,
  begun: boolean,
  service: Service | null,
  again: () => void,
): HTMLElement {
  const refused = error instanceof GatewayError ? error : null;
  const title = refused === null ? 'Stopped' : 'No proof';
  const text = refused === null ? 'You stopped this answer before its proof came.' : sentence(refused, service);
  const unproven = begun ? ' What stands above is unproven: do not rely on it.' : '';
  const label = refused === null ? '' : [refused.status || '', refused.code].join(' ').trim();
  announce(`${title}. ${text}${unproven}`);
  return el(
    'section',
    { class: 'trouble', 'data-code': refused?.code ?? 'stopped' },
    el('h2', {}, title, label === '' ? null : el('code', {}, label)),
    el('p', {}, `${text}${unproven}`),
    el('p', { class: 'actions' }, el('button', { type: 'button', class: 'quiet', on: { click: again } }, 'Try again')),
  );
}

function sentence({ status, code, message, retryAfterSeconds }: GatewayError, service: Service | null): string {
  const advice = status === 401 && service?.key_required === false ? BACKEND_KEY : (ADVICE[code] ?? '');
  const after =
    retryAfterSeconds === null
      ? ''
      : ` The service says to try again in ${retryAfterSeconds} ${retryAfterSeconds === 1 ? 'second' : 'seconds'}.`;
  return `${message} ${advice}`.trim() + after;
}
