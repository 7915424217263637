import { expect, it } from 'vitest';
import { attestationIn, readStored } from '../../page/proof/subject.ts';
import { appraiseAttestation } from '../../verify/index.ts';

it('reads a kept file as the text that it is, and none where it is not UTF-8', async () => {
  const text = '{"raw":"a\ufffdb","nonce":"x","token":"y","evidence":[]}';
  const bytes = Buffer.from(text);
  expect(readStored(new Uint8Array(bytes), 'kept')).toMatchObject({ kind: 'attestation', text, transcript: null });
  const broken = Buffer.concat([
    bytes.subarray(0, bytes.indexOf('\ufffd')),
    Buffer.from([0xff]),
    bytes.subarray(bytes.indexOf('\ufffd') + 3),
  ]);
  const read = readStored(new Uint8Array(broken), 'broken');
  expect(read.text).not.toContain('\ufffd');
  const { valid, checks } = await appraiseAttestation(read.text);
  expect([valid, checks[0]]).toMatchObject([false, { name: 'form', status: 'fail' }]);
});

it.each([[null], ['text'], [{}], [[null]], [[{}]], [[{ arch: 'HOPPER', report: 5, certificate_chain: '' }]]])(
  'sees no attestation to take apart where its evidence is %j',
  (evidence) => {
    const parts = { raw: '{}', nonce: 'x', token: 'y' };
    const read = (value: object) => attestationIn(readStored(Buffer.from(JSON.stringify(value)), 'kept'));
    expect(read({ ...parts, evidence })).toBeNull();
    expect(read(parts)).toEqual(parts);
  },
);
