// A proof's verdict in a frame of another site. The proof comes in the frame's address, and the check runs here.
import { byId } from '../base/dom.ts';
import { GatewayError, getService, type Service } from '../base/gateway.ts';
import { isLink, proofIn } from '../proof/link.ts';
import { readStored } from '../proof/subject.ts';
import { onBadge } from '../proof/verdict.ts';
import { verify } from '../proof/verifier.ts';
import { BADGES, ICONS } from '../proof/words.ts';

function show(verdict: keyof typeof ICONS, title: string, sentence: string): void {
  byId('badge').dataset.verdict = verdict;
  byId('icon').textContent = ICONS[verdict];
  byId('title').textContent = title;
  byId('sentence').textContent = sentence;
}

async function service(): Promise<Service | null> {
  try {
    return await getService();
  } catch (error) {
    if (error instanceof GatewayError) return null;
    throw error;
  }
}

async function check(): Promise<void> {
  const { hash } = location;
  const bytes = isLink(hash) ? await proofIn(hash) : 'damaged';
  if (typeof bytes === 'string') return show('foreign', BADGES.foreign, 'The address of this frame carries no proof.');
  // The same proof, with everything to look at.
  byId<HTMLAnchorElement>('badge').href = `/${hash}`;
  const now = await service();
  const subject = readStored(bytes, 'linked');
  try {
    const settings = { service: now, simulatedRoots: now?.simulated_root ?? '', collateral: true };
    const report = await verify(subject, settings, () => {});
    const { verdict, badge, sentence } = onBadge(report, subject, new Date());
    show(verdict, badge, sentence);
  } catch (error) {
    show('unchecked', BADGES.unchecked, error instanceof Error ? `${error.message}.` : '');
  }
}

addEventListener('hashchange', () => void check());
await check();
document.documentElement.dataset.ready = 'yes';
