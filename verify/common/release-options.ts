// What the caller says of a release, and what is told of one that was verified.
import type { Names } from './known-options.ts';

export interface ReleaseOptions {
  /** The release's Sigstore bundle, as JSON text; null where it was not to be had, which is the failure release_unavailable. */
  readonly bundle: string | null;
  /** The newest status that was shown, as JSON text of its bundle. */
  readonly status?: string | null | undefined;
  /** OWNER/REPO on GitHub; the project's own by default, once it has one. */
  readonly repository?: string | undefined;
  /** The tag that the release must have; without it any, and then a fresh status is demanded. */
  readonly tag?: string | undefined;
  /** Sigstore's trusted root as JSON text, in place of the public one that is built in. */
  readonly trustedRoot?: string | undefined;
}

export const RELEASE_OPTIONS: Names<ReleaseOptions> = {
  bundle: true,
  status: true,
  repository: true,
  tag: true,
  trustedRoot: true,
};

/** A release whose signature, log entry and identity were verified. */
export interface ReleaseClaims {
  /** OWNER/REPO whose workflow signed. */
  readonly repository: string;
  /** Whether it is the project's own. */
  readonly own: boolean;
  readonly tag: string;
  readonly commit: string;
  /** SHA-256 of the statement. */
  readonly statement_sha256: string;
  /** When it was logged, ISO 8601. */
  readonly logged: string;
  /** Whether a root of the caller's stood in place of Sigstore's public one. */
  readonly own_root: boolean;
  readonly weights: readonly ReleaseWeights[];
  readonly images: Readonly<Record<string, string>>;
  /** By SHA-256, the name that the release gives to a launch file. */
  readonly launches: Readonly<Record<string, string>>;
  /** null: its check failed. */
  readonly status: ReleaseStatus | null;
}

/** What a launch file says of the weights. */
export interface ReleaseWeights {
  /** The name of the launch file. */
  readonly launch: string;
  readonly name: string;
  readonly verity_root: string | null;
}

/** What is known of a release's standing at a time. */
export interface ReleaseStatus {
  /** `absent`: no status was shown. `stale`: it was signed more than 14 days before. */
  readonly state: 'fresh' | 'stale' | 'absent';
  /** When the status was logged, ISO 8601. */
  readonly time: string | null;
  /** The tag that is current by it. */
  readonly current: string | null;
  /** Why the release was withdrawn after the time of the check; null: it was not. */
  readonly withdrawn_later: string | null;
}
