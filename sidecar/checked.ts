// PLACEHOLDER

import type { Nonce } from '../proto/raw.ts';
import type { Attester, Collected } from './attester.ts';
export async function checkCollected(_c: Collected, _n: Nonce, _a: Attester): Promise<void> {}
