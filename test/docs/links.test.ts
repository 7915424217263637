// Every relative link of every page leads to a file that is there, and to a heading of it.
import { existsSync } from 'node:fs';
import { posix } from 'node:path';
import { describe, expect, it } from 'vitest';
import { slug, toRepository } from '../../docs/.vitepress/links.ts';
import { allPages, anchors, links, prose, ROOT, read } from './markdown.ts';

const found = allPages();

/** What is wrong with a page's links. */
function dead(page: string, text: string): string[] {
  return links(text)
    .filter((link) => !/^[a-z][a-z+.-]*:/i.test(link))
    .filter((link) => {
      const [path = '', anchor] = decodeURI(link).split('#');
      const target = path === '' ? page : posix.normalize(posix.join(posix.dirname(page), path));
      if (target.startsWith('..') || !existsSync(`${ROOT}${target}`)) return true;
      return anchor !== undefined && target.endsWith('.md') && !anchors(read(target)).has(anchor);
    });
}

describe('the links', () => {
  it.each(found)('of %s lead somewhere', (page) => {
    expect(dead(page, read(page))).toEqual([]);
  });

  it('were looked for in README, docs, CONTRIBUTING and the packages', () => {
    expect(found).toEqual(
      expect.arrayContaining([
        'README.md',
        'CONTRIBUTING.md',
        'docs/quickstart.md',
        'docs/nodes/azure.md',
        'packages/verify/README.md',
        'python/README.md',
      ]),
    );
    expect(found.flatMap((page) => links(read(page))).length).toBeGreaterThan(100);
  });

  it.each([
    ['a file that is not there', '[a](none.md)'],
    ['a heading that is not there', '[a](glossary.md#none)'],
    ['a heading of its own that is not there', '# One\n[a](#two)'],
    ['a picture that is not there', '![a](none.svg)'],
    ['a file outside of the project', '[a](../../none.md)'],
  ])('are dead that lead to %s', (_what, text) => {
    expect(dead('docs/clients.md', text)).toHaveLength(1);
  });

  it('are not seen in code, nor headings there', () => {
    const page = '# One\n\n```sh\n# two [a](none.md)\n```\n`[b](none.md)` [c](#one)\n';
    expect(links(page)).toEqual(['#one']);
    expect([...anchors(page)]).toEqual(['one']);
    expect(prose(page)).not.toContain('two');
  });
});

describe('anchors', () => {
  it.each([
    ['8. Batches', '8-batches'],
    ['What `tee` does: a first look', 'what-tee-does-a-first-look'],
    ['Two  words — and a dash', 'two--words--and-a-dash'],
    ['/v1/models', 'v1models'],
  ])('are those of GitHub: %s', (heading, anchor) => {
    expect(slug(heading)).toBe(anchor);
  });

  it('of headings that are the same are numbered', () => {
    expect([...anchors('# A\n## A\n## A\n')]).toEqual(['a', 'a-1', 'a-2']);
  });
});

describe('a link in the site', () => {
  const REPOSITORY = 'https://github.com/countersign/countersign/blob/main/';
  it.each([
    ['clients.md', 'clients.md'],
    ['nodes/index.md#levels', 'nodes/index.md#levels'],
    ['#here', '#here'],
    ['https://example.com/a.ts', 'https://example.com/a.ts'],
    ['../examples/README.md#a', `${REPOSITORY}examples/README.md#a`],
    ['alerts.yaml', `${REPOSITORY}docs/alerts.yaml`],
  ])('%s leads to %s', (href, target) => {
    expect(toRepository(href, 'verify.md')).toBe(target);
  });

  it('is seen from its page', () => {
    expect(toRepository('../verify.md', 'nodes/azure.md')).toBe('../verify.md');
    // The site leaves out the READMEs of docs/.
    expect(toRepository('grafana/README.md', 'operate.md')).toBe(`${REPOSITORY}docs/grafana/README.md`);
    expect(toRepository('../../deploy/cvm/README.md', 'nodes/azure.md')).toBe(`${REPOSITORY}deploy/cvm/README.md`);
  });
});
