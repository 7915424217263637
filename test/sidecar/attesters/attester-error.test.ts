import { expect, test } from 'vitest';
import { ServiceUnavailable } from '../../../sidecar/attesters/nras/service.ts';
import { failed } from '../../../sidecar/common/attester.ts';

test('a failure begins with its reason', () => {
  expect(failed('collection_failed', 'no_gpu', 'the driver sees none', 'stop')).toMatchObject({
    message: 'no_gpu: the driver sees none',
    words: 'the driver sees none',
    kind: 'collection_failed no_gpu',
  });
});

test('a failure that is told with where it was met stays what it is, and says when to come back', () => {
  const busy = new ServiceUnavailable('nras_busy', 'it asks for 7 s more', 7000);
  expect(busy.at('ATTESTER=nras cannot run here')).toMatchObject({
    message: 'ATTESTER=nras cannot run here: nras_busy: it asks for 7 s more',
    code: 'appraisal_failed',
    reason: 'nras_busy',
    retryable: true,
    retry_after_ms: 7000,
    cause: busy,
  });
});
