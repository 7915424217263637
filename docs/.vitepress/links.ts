// Links work twice: on GitHub as they stand in the pages, and in the site.
import { posix } from 'node:path';

const REPOSITORY = 'https://github.com/countersign/countersign/blob/main/';

/** The anchor of a heading, as GitHub makes it. */
export function slug(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
    .replaceAll(/\s/g, '-');
}

/** A link to a file that is no page of the site leads to the repository; any other stays. `page` is its path under docs/. */
export function toRepository(href: string, page: string): string {
  if (/^[a-z][a-z+.-]*:|^[#/]/i.test(href)) return href;
  const [path = '', anchor] = href.split('#');
  const target = posix.normalize(posix.join('docs', posix.dirname(page), path));
  if (target.startsWith('docs/') && /\.md$/.test(target) && !target.endsWith('/README.md')) return href;
  return `${REPOSITORY}${target}${anchor === undefined ? '' : `#${anchor}`}`;
}
