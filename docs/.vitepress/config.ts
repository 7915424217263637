// The documentation's site: its pages, their order, and how links are written. `npm run make site` builds it into build/site.
import { readFileSync } from 'node:fs';
import { defineConfig } from 'vitepress';
import { slug, toRepository } from './links.ts';

/** Their tables are wide: they have no outline beside them. */
const WIDE = new Set(['architecture.md', 'configuration.md', 'conformance.md', 'errors.md', 'index.md', 'metrics.md']);

const ICON = `data:image/svg+xml,${encodeURIComponent(readFileSync(new URL('../../page/icon.svg', import.meta.url), 'utf8'))}`;

export default defineConfig({
  title: 'Countersign',
  description:
    'An OpenAI-compatible gateway whose answers carry a GPU’s signature over exactly what was asked and answered.',
  lang: 'en',
  head: [['link', { rel: 'icon', href: ICON }]],
  outDir: '../build/site',
  cacheDir: '../.cache/site',
  srcExclude: ['**/README.md'],
  transformPageData: ({ relativePath }) => (WIDE.has(relativePath) ? { frontmatter: { aside: false } } : {}),
  markdown: {
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    anchor: { slugify: slug },
    headers: { slugify: slug },
    config: (md) => {
      md.core.ruler.push('repository', ({ tokens, env }) => {
        for (const token of tokens.flatMap(({ children }) => children ?? [])) {
          const href = token.attrGet('href');
          if (token.type === 'link_open' && href !== null)
            token.attrSet('href', toRepository(href, (env as { relativePath: string }).relativePath));
        }
      });
    },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: { level: [2, 3], label: 'On this page' },
    nav: [
      { text: 'Quickstart', link: '/quickstart' },
      { text: 'How it works', link: '/how-it-works' },
      { text: 'Verify', link: '/verify' },
      { text: 'Sealed prompts', link: '/sealed' },
    ],
    sidebar: [
      {
        items: [
          { text: 'Quickstart', link: '/quickstart' },
          { text: 'How it works', link: '/how-it-works' },
          { text: 'Clients', link: '/clients' },
          { text: 'Verify', link: '/verify' },
          { text: 'Releases', link: '/releases' },
          { text: 'Audit the weights', link: '/audit' },
          { text: 'Sealed prompts', link: '/sealed' },
          { text: "Agents' runs", link: '/agents' },
        ],
      },
      {
        text: 'Run on a node',
        items: [
          { text: 'Overview', link: '/nodes/' },
          { text: 'Weights', link: '/weights' },
          { text: 'Bare metal, SEV-SNP', link: '/nodes/bare-metal-snp' },
          { text: 'Bare metal, TDX', link: '/nodes/bare-metal-tdx' },
          { text: 'Azure', link: '/nodes/azure' },
          { text: 'Google Cloud', link: '/nodes/gcp' },
          { text: 'H200', link: '/nodes/h200' },
          { text: 'B200', link: '/nodes/b200' },
          { text: 'Kubernetes', link: '/kubernetes' },
          { text: 'Confidential Containers', link: '/nodes/confidential-containers' },
        ],
      },
      {
        text: 'Operate',
        items: [
          { text: 'Day to day', link: '/operate' },
          { text: 'Settings', link: '/configuration' },
          { text: 'Metrics', link: '/metrics' },
          { text: 'Watch a fleet', link: '/watch' },
        ],
      },
      {
        items: [
          { text: 'Attestation format', link: '/attestation' },
          { text: 'Security', link: '/security' },
          { text: 'Errors', link: '/errors' },
          { text: 'Questions', link: '/faq' },
          { text: 'Comparison', link: '/compare' },
          { text: 'Glossary', link: '/glossary' },
        ],
      },
      {
        text: 'Reference',
        items: [
          { text: 'Architecture', link: '/architecture' },
          { text: 'Performance', link: '/performance' },
          { text: 'Conformance', link: '/conformance' },
        ],
      },
    ],
  },
});
