// One line of the doctor's report: the check, what it found, and what to do about it.

type Status = 'ok' | 'warn' | 'fail' | 'skip';

export interface Finding {
  /** `driver`, `cc_mode`, `devices`, …: stable, for programs. */
  readonly name: string;
  readonly status: Status;
  readonly seen: string;
  /** Present where the operator should act. */
  readonly todo?: string;
}

export const ok = (name: string, seen: string): Finding => ({ name, status: 'ok', seen });
export const warn = (name: string, seen: string, todo: string): Finding => ({ name, status: 'warn', seen, todo });
export const fail = (name: string, seen: string, todo: string): Finding => ({ name, status: 'fail', seen, todo });
export const skip = (name: string, seen: string): Finding => ({ name, status: 'skip', seen });

/** 1 when a check failed. */
export const exitCode = (findings: readonly Finding[]): 0 | 1 =>
  findings.some(({ status }) => status === 'fail') ? 1 : 0;
