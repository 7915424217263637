// The one error of the launcher.

/** The service did not come up. The message is one line for the person who started it. */
export class StartError extends Error {
  override readonly name = 'StartError';
}
