// What a proof says of itself, in full: the verifier's own sentences, devices, processor, token.

import type { VerificationReport } from '../../verify/index.ts';
import { ageInWords } from '../../verify/policy/verdict.ts';
import { el } from '../base/dom.ts';

export function factsView({ proven, not_proven, claims }: VerificationReport): HTMLElement {
  return el(
    'div',
    { class: 'statements' },
    ...(proven.length > 0 ? [list('Proven', 'proven', proven)] : []),
    ...(not_proven.length > 0 ? [list('Not proven', 'not-proven', not_proven)] : []),
    el(
      'section',
      { class: 'facts' },
      el('h3', {}, 'What it says of itself'),
      el('dl', {}, ...factsOf(claims).flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])),
    ),
  );
}

function list(title: string, kind: string, texts: readonly string[]): HTMLElement {
  return el('section', { class: kind }, el('h3', {}, title), el('ul', {}, ...texts.map((text) => el('li', {}, text))));
}

function factsOf(claims: VerificationReport['claims']): [string, string][] {
  const facts: [string, string][] = [];
  if (claims.time !== null)
    facts.push([
      'Time',
      `${new Date(claims.time).toLocaleString()}, ${ageInWords(claims.time, new Date())}, by the gateway's clock`,
    ]);
  if (claims.batch !== null) facts.push(['Answers under this nonce', `${claims.batch.tree_size}`]);
  for (const { model, driver, vbios, mode, ueid } of claims.devices) {
    facts.push([claims.simulated ? 'Device (simulated)' : 'Device', model]);
    facts.push([
      'Driver and VBIOS',
      `${driver ?? 'not said'}, ${vbios ?? 'not said'}${mode === null ? '' : `, mode ${mode}`}`,
    ]);
    facts.push(['Device id', ueid]);
  }
  if (claims.cpu !== null) {
    const { type, product, measurement, software } = claims.cpu;
    const kind = `${type}${product === null ? '' : `, ${product}`}`;
    facts.push([claims.cpu.simulated ? 'Processor (simulated)' : 'Processor', kind]);
    facts.push(['Launch measurement', measurement]);
    if (software?.model != null) facts.push(['Weights', `${software.model.name}, root ${software.model.verity_root}`]);
  }
  if (claims.token !== null)
    facts.push([
      'Token',
      `${claims.token.kind}, ${claims.token.signature ?? 'signature not checked'}, in the name of ${claims.token.issuer}`,
    ]);
  return facts;
}
