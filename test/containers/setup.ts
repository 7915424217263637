// Runs once before the container tests: Docker, base image, images, the demo profile up. Takes down all that it made.
import { mkdtempSync, rmSync } from 'node:fs';
import type { TestProject } from 'vitest/node';
import { composeProgram } from '../support/compose-program.ts';
import { debianProgram, MissingPart } from '../support/debian.ts';
import { importBase } from './base.ts';
import { docker, startDaemon } from './daemon.ts';
import { firstAnswer } from './first.ts';
import { buildImages } from './images.ts';
import { makeNode } from './node.ts';
import { type Made, stageOf } from './stage.ts';

declare module 'vitest' {
  interface ProvidedContext {
    containers: Made | { missing: string };
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const undo: (() => unknown)[] = [];
  const teardown = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    project.provide('containers', await make(undo));
  } catch (error) {
    await teardown();
    if (!(error instanceof MissingPart)) throw error;
    console.warn(`SKIPPED: everything about containers: this machine lacks ${error.message}`);
    project.provide('containers', { missing: error.message });
  }
  return teardown;
}

async function make(undo: (() => unknown)[]): Promise<Made> {
  if (process.getuid?.() !== 0) throw new MissingPart('the right to run dockerd: the container tests run as root');
  for (const [command, name] of [
    ['dockerd', 'docker.io'],
    ['mmdebstrap', 'mmdebstrap'],
    ['ip', 'iproute2'],
  ] as const)
    debianProgram(command, name);
  composeProgram();
  // Short: the paths of sockets lie in it.
  const folder = mkdtempSync('/tmp/csd-');
  undo.push(() => rmSync(folder, { recursive: true, force: true }));

  // First of all: where this is forbidden, so is all that Docker does.
  const node = await makeNode();
  undo.push(() => node.remove());
  const builder = await startDaemon(folder, null);
  const sizes = await (async () => {
    try {
      await importBase(docker, builder.host, folder);
      return await buildImages(docker, builder.host, folder);
    } finally {
      await builder.stop();
    }
  })();

  const { host, stop } = await startDaemon(folder, node.path);
  undo.push(() => stop());
  const at = { host, address: node.address };
  const stage = stageOf(at);
  undo.push(() => stage.compose('down', '--volumes', '--timeout', '5'));
  return { ...at, outside: node.outside, sizes, first_answer_ms: await firstAnswer(stage) };
}
