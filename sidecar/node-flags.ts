// How Node is started for the sidecar. `package.json`, the image and the systemd unit say the same; a test compares them.

export const NODE_FLAGS = [
  // In a quiet minute V8 cleans up, and drops shapes of objects that nobody has just then, and with them the compiled code that
  // knows them: for seconds after a pause the sidecar's own work cost three times as much. Dead objects are still collected as ever.
  '--no-memory-reducer',
] as const;
