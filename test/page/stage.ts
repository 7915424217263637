// A service, and its page in a real Chromium that notes every complaint and every request that leaves the gateway.
import { type Browser, chromium, type Page } from 'playwright-core';
import { inject } from 'vitest';
import { CHROMIUM_ARGS } from '../browser/page.ts';
import { type GatewaySettings, type Service, startService } from '../support/harness.ts';

const found = inject('chromium');
/** For the names of suites: empty where there is a browser. */
export const missing = 'missing' in found ? `, SKIPPED without ${found.missing}` : '';

/** A name under which the gateway is reached over an open line, as far as the browser can tell. */
const INSECURE_HOST = 'insecure.example';

export interface Visit {
  readonly page: Page;
  /** Errors of the page, and of its console. */
  readonly complaints: string[];
  /** Requests to anybody but the gateway. */
  readonly strangers: string[];
  /** Every request, as `POST /v1/chat/completions`. */
  readonly requests: string[];
  close(): Promise<void>;
}

export interface VisitOptions {
  readonly phone?: boolean;
  readonly dark?: boolean;
  readonly still?: boolean;
  /** The page's clock, ISO 8601. */
  readonly at?: string;
  /** As on a phone with a slow line: 1.6 Mbit/s, 150 ms to the gateway and back, a quarter of this processor. */
  readonly slow?: boolean;
  /** Over HTTP from a host that is not this machine. */
  readonly insecure?: boolean;
  /** Runs in the page before its own script. */
  readonly script?: string;
}

export interface Stage {
  readonly service: Service;
  visit(options?: VisitOptions): Promise<Visit>;
  close(): Promise<void>;
}

export async function openStage(
  env: GatewaySettings = {},
  options: Parameters<typeof startService>[1] = {},
): Promise<Stage> {
  const service = await startService(env, options);
  const browser: Browser = await chromium.launch({
    executablePath: 'path' in found ? found.path : '',
    args: [...CHROMIUM_ARGS, `--host-resolver-rules=MAP ${INSECURE_HOST} 127.0.0.1`],
  });
  return {
    service,
    visit: (options = {}) => {
      const { url } = service.gateway;
      return open(browser, options.insecure ? url.replace('127.0.0.1', INSECURE_HOST) : url, options);
    },
    async close() {
      await browser.close();
      await service.close();
    },
  };
}

async function open(browser: Browser, url: string, options: VisitOptions): Promise<Visit> {
  const context = await browser.newContext({
    viewport: options.phone ? { width: 390, height: 844 } : { width: 1280, height: 800 },
    colorScheme: options.dark ? 'dark' : 'light',
    reducedMotion: options.still === false ? 'no-preference' : 'reduce',
    acceptDownloads: true,
  });
  const page = await context.newPage();
  const visit = { page, complaints: [] as string[], strangers: [] as string[], requests: [] as string[] };
  page.on('pageerror', (error) => visit.complaints.push(String(error)));
  page.on('console', (message) => {
    // Chromium says of every answer that is no success that it failed to load: the page shows those itself.
    const ours = message.type() === 'error' && !message.text().startsWith('Failed to load resource');
    if (ours) visit.complaints.push(message.text());
  });
  page.on('request', (request) => {
    const { origin, pathname } = new URL(request.url());
    visit.requests.push(`${request.method()} ${pathname}`);
    if (origin !== url && !request.url().startsWith('blob:')) visit.strangers.push(request.url());
  });
  if (options.script !== undefined) await page.addInitScript({ content: options.script });
  if (options.at !== undefined) await page.clock.setFixedTime(options.at);
  if (options.slow === true) {
    const cdp = await context.newCDPSession(page);
    const line = { offline: false, latency: 150, downloadThroughput: 200_000, uploadThroughput: 90_000 };
    await cdp.send('Network.emulateNetworkConditions', line);
    await cdp.send('Emulation.setCPUThrottlingRate', { rate: 4 });
  }
  await page.goto(url);
  await page.waitForSelector('html[data-ready=yes]', { timeout: 20_000 });
  return { ...visit, close: () => context.close() };
}

/** Sends a message as people do, and waits until its proof, or what stands in its place, is there. */
export async function say(page: Page, text: string): Promise<void> {
  const turns = await page.locator('.turn').count();
  await page.fill('#message', text);
  await page.press('#message', 'Enter');
  await page.locator('.turn').nth(turns).locator('.proof[data-complete], .trouble').waitFor({ timeout: 20_000 });
}

/** Opens the newest proof, which is one line in the chat. */
export async function unfold(page: Page): Promise<void> {
  const card = page.locator('.card').last();
  if ((await card.getAttribute('open')) !== null) return;
  // The card takes its long title when the browser says that it is open, which comes after the click.
  const opened = card.evaluate(
    (details) =>
      new Promise<void>((seen) => {
        details.addEventListener('toggle', () => seen(), { once: true });
      }),
  );
  await card.locator('> .verdict').click();
  await opened;
}

/** Has a link to the newest proof copied. @returns its address */
export async function copyLink(page: Page): Promise<string> {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await unfold(page);
  await page.click('.card[open] >> text=Copy link');
  await page.click('.share:visible >> text=Copy the whole link');
  await page.locator('text=Copied').first().waitFor();
  return String(await page.evaluate('navigator.clipboard.readText()'));
}

/** Waits for a verdict of the newest proof. */
export async function verdict(page: Page, kind: string): Promise<void> {
  await page.locator(`.proof[data-verdict=${kind}]`).last().waitFor({ timeout: 20_000 });
}

/** The checks of the newest proof by how they went. */
export async function checks(page: Page, status: 'pass' | 'fail' | 'skip' | 'unchecked'): Promise<string[]> {
  const rows = page.locator('.proof').last().locator(`[data-check][data-status=${status}]`);
  return rows.evaluateAll((elements) => elements.map((element) => element.getAttribute('data-check') ?? ''));
}
