// The socket that a service manager hands over: sd_listen_fds(3), so that connections queue while the sidecar restarts.

/** The first descriptor that is handed over, whoever does it (SD_LISTEN_FDS_START). */
const FIRST_FD = 3;

/**
 * The descriptor of the listening socket that this process was started with; null when there is none, or it was meant for another process.
 * @throws {Error} one line: more than one socket, or a count that is no number.
 */
export function inheritedSocket(env: Readonly<Record<string, string | undefined>>, pid: number): number | null {
  const { LISTEN_PID, LISTEN_FDS } = env;
  if (LISTEN_PID !== String(pid)) return null;
  if (LISTEN_FDS === undefined || LISTEN_FDS === '0') return null;
  if (LISTEN_FDS !== '1') throw new Error(`LISTEN_FDS is ${LISTEN_FDS}: one socket is expected`);
  return FIRST_FD;
}
