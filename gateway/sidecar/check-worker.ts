// The thread that checks what a sidecar answered.
import { attestedMembersSchema } from '../../proto/frames.ts';
import { CheckFailure, checkReports } from '../../verify/index.ts';
import { answerQuestions } from '../thread.ts';
import type { CheckAnswer, CheckQuestion } from './check.ts';

answerQuestions<CheckQuestion, CheckAnswer>(async ({ members, nonce, simulatedRoot }) => {
  try {
    const carried = attestedMembersSchema.parse(JSON.parse(Buffer.from(members.buffer).toString('utf8')));
    await checkReports(carried, nonce, simulatedRoot);
    return null;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return { code: error.code, message: error.message };
  }
});
