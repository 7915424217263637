// Brings what the tests of the deployments need.
export async function setup(): Promise<void> {}
