// One verification asks for each thing once, however many devices need it: what was refused is fetched by the next one.
import { toHex } from './bytes.ts';
import type { Collateral } from './collateral.ts';

export function askedOnce(collateral: Collateral): Collateral {
  const rims = new Map<string, ReturnType<Collateral['rim']>>();
  const answers = new Map<string, ReturnType<Collateral['ocsp']>>();
  return {
    rim: (query) => once(rims, JSON.stringify(query), () => collateral.rim(query)),
    ocsp: (query) =>
      once(answers, `${query.at.getTime()} ${toHex(query.certificate.der)}`, () => collateral.ocsp(query)),
    refused: async (query) => collateral.refused?.(query),
  };
}

function once<T>(asked: Map<string, Promise<T>>, name: string, ask: () => Promise<T>): Promise<T> {
  const answer = asked.get(name) ?? ask();
  asked.set(name, answer);
  return answer;
}
