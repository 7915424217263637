// Takes a PromQL expression apart, as far as a test must: which metrics it reads, and which labels it asks of them.

export interface Read {
  readonly metric: string;
  readonly labels: readonly string[];
}

const WORDS = /^(by|without|on|ignoring|group_left|group_right|bool|and|or|unless|inf|nan)$/i;

/** Every metric with the labels of its own matchers. Label names of `by (…)` come under `grouped`. */
export function reads(expr: string): { metrics: Read[]; grouped: string[] } {
  const grouped = [...expr.matchAll(/\b(?:by|without)\s*\(([^)]*)\)/g)].flatMap(([, list]) => names(list ?? ''));
  const bare = expr.replaceAll(/\b(?:by|without)\s*\([^)]*\)/g, ' ').replaceAll(/\[[^\]]*\]/g, ' ');
  const metrics = [...bare.matchAll(/([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?\s*(\()?/g)]
    .filter(([, name, , call]) => call === undefined && !WORDS.test(name ?? ''))
    .map(([, name, matchers]) => ({
      metric: name ?? '',
      labels: [...(matchers ?? '').matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label]) => label ?? ''),
    }));
  return { metrics, grouped };
}

const names = (list: string) =>
  list
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
