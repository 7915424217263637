// A registry inside the test's own network, of images that hold one program: what a guest pulls by digest, over HTTP.

import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { run, sha256 } from './guest.ts';

const MANIFEST = 'application/vnd.oci.image.manifest.v1+json';
const CONFIG = 'application/vnd.oci.image.config.v1+json';
const LAYER = 'application/vnd.oci.image.layer.v1.tar+gzip';

export interface Registry {
  /** As a guest of QEMU's user network reaches it. */
  readonly host: string;
  /** Adds an image. @param folder its only layer. @returns its name with its digest. */
  add(name: string, folder: string, entrypoint: readonly string[], env?: readonly string[]): string;
  /** The paths that were asked for. */
  readonly asked: readonly string[];
  close(): void;
}

export async function startRegistry(): Promise<Registry> {
  const blobs = new Map<string, { readonly type: string; readonly bytes: Buffer }>();
  const asked: string[] = [];
  const keep = (type: string, bytes: Buffer) => {
    const digest = `sha256:${sha256(bytes)}`;
    blobs.set(digest, { type, bytes });
    return { mediaType: type, digest, size: bytes.length };
  };
  const server: Server = createServer(({ url = '', method }, response) => {
    asked.push(url);
    if (url === '/v2/') return void response.end('{}');
    const blob = blobs.get(decodeURIComponent(/\/(?:manifests|blobs)\/(.*)$/.exec(url)?.[1] ?? ''));
    if (blob === undefined) return void response.writeHead(404).end('{}');
    response.writeHead(200, { 'content-type': blob.type, 'content-length': blob.bytes.length });
    response.end(method === 'HEAD' ? undefined : blob.bytes);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const host = `10.0.2.2:${(server.address() as AddressInfo).port}`;
  return {
    host,
    asked,
    add(name, folder, entrypoint, env = []) {
      const tar = `${folder}.${name}.tar`;
      run('tar', ['-cf', tar, '--owner=0', '--group=0', '-C', folder, '.']);
      const bytes = readFileSync(tar);
      const layer = keep(LAYER, gzipSync(bytes));
      const config = keep(
        CONFIG,
        Buffer.from(
          JSON.stringify({
            architecture: 'amd64',
            os: 'linux',
            config: { Entrypoint: entrypoint, Env: env },
            rootfs: { type: 'layers', diff_ids: [`sha256:${sha256(bytes)}`] },
          }),
        ),
      );
      const manifest = { schemaVersion: 2, mediaType: MANIFEST, config, layers: [layer] };
      return `${join(host, name)}@${keep(MANIFEST, Buffer.from(JSON.stringify(manifest))).digest}`;
    },
    close: () => void server.close(),
  };
}
