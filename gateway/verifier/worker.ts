// The thread that verifies: whatever an attestation costs to read and check, chat does not wait for it.
import { workerData } from 'node:worker_threads';
import { answerQuestions } from '../thread.ts';
import { createAppraise } from './appraise.ts';
import type { Job, Verdict, WorkerOptions } from './job.ts';

answerQuestions<Job, Verdict>(createAppraise(workerData as WorkerOptions, globalThis.fetch));
